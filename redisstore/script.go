package redisstore

import (
	"crypto/sha1"
	_ "embed" // for the scripts
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
	//go:embed lua/warmup.lua
	warmupLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/receipts.lua
	receiptsLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/exceed.lua
	exceedLua string
	//go:embed lua/once.lua
	onceLua string
	//go:embed lua/onceend.lua
	onceEndLua string

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

	//go:embed lua/ahead.lua
	aheadLua string
	//go:embed lua/aheadend.lua
	aheadEndLua string
	//go:embed lua/aheadback.lua
	aheadBackLua string
)

// A family is a set of the files that contain algorithms, one bit for each file. A script
// has only the files that its asks need, because running the definitions of the other
// algorithms would take longer than the decision.
type family uint8

const (
	buckets family = 1 << iota
	windows
	logs
	warms // not a file of an algorithm, but that of the kinds that warm up

	families = 1 << iota // number of possible sets
)

var familyOf = map[byte]family{'t': buckets, 'l': buckets, 'f': windows, 'c': windows, 's': logs}

// takeScripts are the scripts that decide several asks, by the families that these need.
var takeScripts = func() (scripts [families]*script) {
	for f := range scripts {
		fast := takeTogetherLua
		if family(f)&logs != 0 {
			fast = ""
		}
		scripts[f] = newScript(startLua + fast + generalLua(family(f)))
	}
	return scripts
}()

// onceScripts are the takeScripts for requests that are charged once.
var onceScripts = func() (scripts [families]*script) {
	for f := range scripts {
		scripts[f] = newScript(startLua + onceLua + generalLua(family(f)) + onceEndLua)
	}
	return scripts
}()

// generalLua returns the text that decides asks of these families from any state.
func generalLua(f family) string {
	text := []string{exactLua, receiptsLua}
	for i, part := range []string{bucketLua, windowLua, logLua, warmupLua} {
		if f>>i&1 == 1 {
			text = append(text, part)
		}
	}
	return strings.Join(append(text, takeLua), "")
}

// The settleScripts give units back, and the exceedScripts also charge units that were used beyond
// those that were charged. Those of true are for keys that warm up.
var (
	settleScripts = map[bool]*script{
		false: newScript(settlingLua + settleLua + "return 0\n"),
		true:  newScript(settlingLua + warmupLua + settleLua + "return 0\n"),
	}
	exceedScripts = map[bool]*script{
		false: newScript(settlingLua + settleLua + exceedLua),
		true:  newScript(settlingLua + warmupLua + settleLua + exceedLua),
	}

	settlingLua = startLua + exactLua + receiptsLua + bucketLua + windowLua + logLua
)

// aheadScripts are the oneScripts for calls that take units ahead, aheadBackScript gives such
// units back, and aheadNoteScript returns what the last of these calls of a process has noted.
var (
	aheadScripts = func() map[byte]*script {
		scripts := make(map[byte]*script)
		for kind, one := range oneScripts {
			scripts[kind] = newScript(aheadLua + one.text + aheadEndLua)
		}
		return scripts
	}()
	aheadBackScript = newScript(aheadBackLua + settleScripts[false].text)
	aheadNoteScript = newScript("return redis.call('HGET', KEYS[1], ARGV[1]) or ''")
)

// aheadKey returns the name of the hash beside key in which processes note what they take ahead.
func aheadKey(key string) string { return key + ":a" }

// receiptsKey returns the name of the list beside key that has the receipts of its charges.
func receiptsKey(key string) string { return key + ";r" }

// A script is Lua text that runs on the server. Once it has been sent, the server knows it
// by its hash.
type script struct {
	text string
	hash any // holds a string
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// noRetry is a command that the client must not send a second time by itself. If only the
// reply was lost, the first command has already been charged.
type noRetry struct {
	*redis.Cmd
	call    *call
	sending func() // called when the client has a connection and writes the command
}

// Args returns what the client writes. The client calls it when it has a connection, which may
// be long after the command was made: what callers wanted who have left since is not asked for.
func (c noRetry) Args() []any {
	c.sending()
	return c.call.without(c.Cmd.Args())
}

// NoRetry tells the client not to repeat the command.
func (noRetry) NoRetry() bool { return true }
