package redisstore

import (
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

	//go:embed lua/start.lua
	startLua string
	//go:embed lua/onebucket.lua
	oneBucketLua string
	//go:embed lua/onefixed.lua
	oneFixedLua string
	//go:embed lua/onecounter.lua
	oneCounterLua string
	//go:embed lua/onelog.lua
	oneLogLua string
	//go:embed lua/one.lua
	oneLua string
	//go:embed lua/taketogether.lua
	takeTogetherLua string
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
		text := []string{startLua, takeTogetherLua, exactLua}
		if family(f)&logs != 0 {
			text = []string{startLua, exactLua}
		}
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

// A script is one that the server knows by its hash, noRetry it has been sent.
type script struct {
	text string
	hash any // a string
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// noRetry is a command that the client does not send again by itself: its reply may
// have been lost, not it.
type noRetry struct{ *redis.Cmd }

// NoRetry returns true.
func (noRetry) NoRetry() bool { return true }
