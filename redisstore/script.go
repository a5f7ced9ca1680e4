package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/exact.lua
	exactLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/window.lua
	windowLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/giveback.lua
	giveBackLua string
)

// A family is a bit for each file of algorithms. A script has those that its asks
// need: what defines the others would take longer than a decision.
type family uint8

const (
	buckets family = 1 << iota
	windows
	logs

	families = 1 << iota // how many sets of them there are
)

var familyOf = map[byte]family{'t': buckets, 'l': buckets, 'f': windows, 'c': windows, 's': logs}

// takeScripts are the scripts for each set of families.
var takeScripts = func() (scripts [families]*script) {
	for f := range scripts {
		text := []string{exactLua}
		for i, part := range []string{bucketLua, windowLua, logLua} {
			if f>>i&1 == 1 {
				text = append(text, part)
			}
		}
		scripts[f] = newScript(strings.Join(append(text, takeLua), ""))
	}
	return scripts
}()

var giveBackScript = newScript(exactLua + bucketLua + windowLua + logLua + giveBackLua)

// A script is one that the server knows by its hash, once it has been sent.
type script struct{ text, hash string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// once is a command that the client does not send again by itself: its reply may
// have been lost, not it.
type once struct{ *redis.Cmd }

// NoRetry returns true.
func (once) NoRetry() bool { return true }

// run runs s on the server of client. If the server does not know it, it is sent.
func (s *script) run(ctx context.Context, client processor, keys []string, args []any) (any, error) {
	reply, err := call(ctx, client, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return call(ctx, client, "eval", s.text, keys, args)
	}
	return reply, err
}

// A processor is what of a client is used.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func call(ctx context.Context, client processor, name, script string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	if err := client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Result()
}
