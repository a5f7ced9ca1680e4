package redisstore

import (
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/hex"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/exact.lua
	exactLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/layers.lua
	layersLua string
	//go:embed lua/window.lua
	windowLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/holes.lua
	holesLua string
	//go:embed lua/held.lua
	heldLua string
	//go:embed lua/calendar.lua
	calendarLua string
	//go:embed lua/warmup.lua
	warmupLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/receipts.lua
	receiptsLua string
	//go:embed lua/settlelog.lua
	settleLogLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/exceededges.lua
	exceedEdgesLua string
	//go:embed lua/exceed.lua
	exceedLua string
	//go:embed lua/once.lua
	onceLua string
	//go:embed lua/onceend.lua
	onceEndLua string
	//go:embed lua/strike.lua
	strikeLua string
	//go:embed lua/penalty.lua
	penaltyLua string
	//go:embed lua/penaltyend.lua
	penaltyEndLua string
	//go:embed lua/penaltyone.lua
	penaltyOneLua string
	//go:embed lua/strikes.lua
	strikesLua string
	//go:embed lua/override.lua
	overrideLua string
	//go:embed lua/overrides.lua
	overridesLua string

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

// A family is a set of Lua files that contain algorithms: each bit stands for one file, or for two that
// belong together. A script contains only the files that its asks need, because the server would take longer
// to define the other algorithms than to make the decision.
type family uint8

const (
	buckets family = 1 << iota
	windows
	logs
	held
	frames // calendar.lua, for asks with a Window
	warms  // warmup.lua, which wraps the algorithms for keys that warm up: their limit is low at first, and grows
	penal  // penalty.lua, which wraps the decision if an ask has a Penalty

	families = 1 << iota // the number of possible sets of files
)

var familyOf = map[byte]family{'t': buckets, 'l': buckets, 'f': windows, 'c': windows, 's': logs, 'h': held}

// The type scripts contains the variants of one script, by the family (set) of Lua files that the script
// contains. A variant is made when it is first needed.
type scripts struct {
	text func(f family) string
	made [families]atomic.Pointer[script]
}

// of returns the variant that contains the Lua files of the family f.
func (s *scripts) of(f family) *script {
	if made := s.made[f].Load(); made != nil {
		return made
	}
	s.made[f].CompareAndSwap(nil, newScript(s.text(f)))
	return s.made[f].Load()
}

// takeScripts decide several asks (requests for units of one key each) together: they charge all asks or none.
var takeScripts = scripts{text: func(f family) string {
	fast := takeTogetherLua
	if f&(logs|held|frames) != 0 {
		fast = ""
	}
	return startLua + deciding(f, fast)
}}

// onceScripts decide the asks of a request with an ID, which is charged only once, even if it is sent again.
var onceScripts = scripts{text: func(f family) string {
	return startLua + onceLua + deciding(f, "") + onceEndLua
}}

// overrideScript changes the list of overrides of a limiter, and overridesScript reads what has changed in it.
var (
	overrideScript  = newScript(startLua + overrideLua)
	overridesScript = newScript(startLua + overridesLua)
)

// strikesScript counts denials toward the Penalties of several keys. Other scripts have made these denials before.
var strikesScript = newScript(startLua + strikeLua + strikesLua)

// deciding returns the part of a script that decides several asks. The parameter fast is the text of the script's fast path,
// which is short code for common states of the keys. It may be empty.
func deciding(f family, fast string) string {
	text := fast + generalLua(f) + takeLua
	if f&penal != 0 {
		text = strikeLua + penaltyLua + text + penaltyEndLua
	}
	return text
}

// settleScripts give units of earlier charges back, and end holds, which count requests as in flight.
// exceedScripts can do this too, and can also add units to an earlier charge. Both can handle all algorithms.
// The code for holds (held), for asks with a Window (frames) and for keys that warm up (warms) is added only if it
// is needed.
var (
	settleScripts = scripts{text: func(f family) string {
		return startLua + generalLua(f|settling) + settleLogLua + settleLua + "return over\n"
	}}
	exceedScripts = scripts{text: func(f family) string {
		edges := ""
		if f&frames != 0 {
			edges = exceedEdgesLua
		}
		return startLua + generalLua(f|settling) + edges + settleLogLua + settleLua + exceedLua + "return over\n"
	}}
)

// settling is the family (set) of the Lua files that every script for giving units back contains.
const settling = buckets | windows | logs

// generalLua returns the general code for asks that need the Lua files in the family f. General code can
// decide whatever the state of a key is, unlike a fast path, which handles only common states.
func generalLua(f family) string {
	text := []string{exactLua, receiptsLua}
	for i, part := range []string{bucketLua + layersLua, windowLua, logLua + holesLua, heldLua, calendarLua, warmupLua} {
		if f>>i&1 == 1 {
			text = append(text, part)
		}
	}
	return strings.Join(text, "")
}

// aheadScripts contains, by the letter of the algorithm, the scripts that decide requests for one key and also take
// units for later requests. aheadBackScript gives such units back. aheadNoteScript reads the note that a process left in
// the server when it last took units for later requests, and aheadForgetScript deletes that note.
var (
	aheadScripts = func() map[byte]*script {
		scripts := make(map[byte]*script)
		for kind, one := range oneScripts {
			scripts[kind] = newScript(aheadLua + one.text + aheadEndLua)
		}
		return scripts
	}()
	aheadBackScript   = newScript(aheadBackLua + settleScripts.of(0).text)
	aheadNoteScript   = newScript("return redis.call('HGET', KEYS[1], ARGV[1]) or ''")
	aheadForgetScript = newScript("return redis.call('HDEL', KEYS[1], ARGV[1])")
)

// aheadKey returns the name of the Redis hash that belongs to the given key. In this hash, each process notes
// the units that it takes ahead for the key. No state has such a name: in the name of a state, a semicolon is
// written as a % and two digits.
func aheadKey(key string) string { return key + ";a" }

// receiptsKey returns the name of the sorted set in the server that has the receipts of the given key, by which
// its charges can be given back. For a rule that limits requests in flight, the set has the requests instead.
func receiptsKey(key string) string { return key + ";r" }

// A script is Lua text that runs on the server. After the first call has sent the text, later calls name
// the script by the hash of the text.
type script struct {
	text string
	hash any // a string: the SHA-1 of the text in hexadecimal
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// noRetry is a command that the client must not send twice. If only the reply was lost, the server has
// already charged the request, and the second command would charge it again.
type noRetry struct {
	redis.Cmd
	call    *call
	sending func() // called when the client has a connection and is about to write the command
}

// Args returns the words of the command. The client calls Args when it has a connection, which may be long
// after the command was made. If callers have left meanwhile, the returned arguments charge nothing for
// them.
func (c *noRetry) Args() []any {
	c.sending()
	return c.call.without(c.Cmd.Args())
}

// NoRetry tells the client not to repeat the command.
func (*noRetry) NoRetry() bool { return true }
