package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ratelimit-go/ratelimit"
)

// oneScripts contains the scripts that decide one key, by the letter of the algorithm. Each script begins
// with a fast path: short code for the common states of a key. The fast path replies with only a state, from
// which this process computes the results. General code after the fast path decides in all other cases.
var oneScripts = oneScriptsWith("")

// penalOneScripts returns the scripts that decide one key for requests with a Penalty. Their fast path decides
// only if it grants every request of the call, because the fast path does not count denials.
var penalOneScripts = sync.OnceValue(func() map[byte]*script { return oneScriptsWith(strikeLua + penaltyOneLua) })

// oneScriptsWith returns the scripts that decide one key. The Lua text in first is put before the fast path.
func oneScriptsWith(first string) map[byte]*script {
	return map[byte]*script{
		't': oneScriptOf('t', first+oneBucketLua, bucketLua+layersLua),
		'l': oneScriptOf('l', first+oneBucketLua, bucketLua+layersLua),
		'f': oneScriptOf('f', first+oneFixedLua, windowLua),
		'c': oneScriptOf('c', first+oneCounterLua, windowLua),
		's': oneScriptOf('s', first+oneLogLua, logLua+holesLua),
	}
}

func oneScriptOf(kind byte, fast, general string) *script {
	return newScript(startLua + fast + exactLua + receiptsLua + general + "\nlocal kind = kinds." + string(kind) + "\n" + oneLua)
}

// env returns the first argument of the scripts that charge. It is empty, except in a test that sets the clock:
// then it contains the time, and the other settings that such a test can change.
func (s *settings) env() string {
	if s.now == nil {
		return ""
	}
	now := s.now().UnixMicro()
	seconds, us := now/1e6, now%1e6
	if us < 0 {
		seconds, us = seconds-1, us+1e6
	}
	return fmt.Sprintf("%d %d %d %s", seconds, us, s.pad.Milliseconds(), flag(s.heals))
}

// oneArgs appends to args the arguments of a script for the key of the given item. The script charges each of
// the costs, one after the other. If it grants all of them, it also charges units for later requests: at most
// as many as the argument ahead says, and only while more units remain than the argument reserve says. A cost
// of 0 charges nothing. A cost must be at most the limit plus one.
func oneArgs(args []any, env string, it *item, costs []int64, ahead, reserve int64) []any {
	args = append(append(args, env), it.args...)
	if len(costs) > 1 || ahead > 0 {
		args = append(args, ahead, reserve)
	}
	for _, n := range costs {
		args = append(args, n)
	}
	return args
}

// The method args returns the arguments that describe the plan p (the rate) to a script for one
// key.
func (p *plan) args() []any {
	if p.burst > 0 {
		return []any{p.prefix(), p.gain, p.unit, p.burst}
	}
	return []any{p.prefix(), p.limit}
}

// numbers returns the numbers of the plan p (the rate) that are stored with each state, at its beginning.
func (p *plan) numbers() []int64 {
	if p.burst > 0 {
		return []int64{p.gain, p.unit, p.burst}
	}
	return []int64{p.unit}
}

// prefix returns the text with which each stored state of a key with the plan p (the rate) begins. Scripts
// compare this text to see whether a state was written at the same rate.
func (p *plan) prefix() string {
	text := make([]byte, 0, 48)
	for _, n := range p.numbers() {
		text = append(strconv.AppendInt(text, n, 10), ' ')
	}
	return string(text)
}

// readOne reads the reply of a script for one key. The slice costs has how many units each caller wants. The
// arguments costs, ahead and reserve must be those from which oneArgs made the arguments of the script. readOne
// returns a result for each caller, the state of the key after the script, and how many units the script took for
// later requests.
func readOne(p *plan, reply any, costs []int64, ahead, reserve int64) ([]ratelimit.Result, snapshot, int64, error) {
	results := make([]ratelimit.Result, len(costs))
	if text, ok := reply.(string); ok {
		reply = fastReply{"", text}
	}
	switch reply := reply.(type) {
	case fastReply:
		l, charged, err := levelIn(p, reply)
		if err != nil || charged && (len(costs) > 1 || ahead > 0) {
			return nil, snapshot{}, 0, newError(ClassOther, errors.Join(errNoState, err))
		}
		if charged {
			l.charge(p, -costs[0])
		}
		all := true
		for i, n := range costs {
			results[i] = l.take(p, n, true)
			all = all && (n == 0 || results[i].Allowed)
		}
		var taken int64
		if all {
			taken = max(0, min(ahead, l.left(p)-reserve))
			l.charge(p, taken)
		}
		return results, snapshotOf(p, &l), taken, nil
	case []any:
		if len(reply) != 3+5*len(costs) {
			break
		}
		r := reader{items: reply}
		taken, s, behind := r.number(), snapshot{at: r.number()}, r.number()
		for i, n := range costs {
			a := r.answer()
			results[i] = a.result(p.limit)
			switch {
			case a.block > 0:
				s.recordBlock(&a, n)
			case !a.granted && n <= 1 && behind >= 0:
				// Not even one unit was left, so none of the later costs was granted either. If behind is -1, the answers
				// are based on a state that was not stored, so no denial is recorded.
				s.recordDenial(&a)
			}
		}
		if r.err != nil {
			return nil, snapshot{}, 0, newError(ClassOther, r.err)
		}
		return results, s, taken, nil
	}
	return nil, snapshot{}, 0, newError(ClassOther, errors.New("the script replied something else"))
}

// fastResults returns the results of the items if the fast path of the script has replied. It returns nil
// if the general code of the script has replied.
func fastResults(items []item, reply any) ([]ratelimit.Result, error) {
	parts, _ := reply.([]any)
	if len(parts) != 1+len(items) {
		return nil, nil
	}
	now, _ := parts[0].(string)
	levels, passes := make([]level, len(items)), true
	for i := range items {
		it := &items[i]
		state, _ := parts[1+i].(string)
		var err error
		if levels[i], _, err = levelIn(&it.plan, fastReply{now, state}); err != nil {
			return nil, newError(ClassOther, err)
		}
		passes = passes && (it.shadow || max(it.n, 1) <= levels[i].left(&it.plan))
	}
	results := make([]ratelimit.Result, len(items))
	for i := range items {
		results[i] = levels[i].take(&items[i].plan, items[i].n, passes)
	}
	return results, nil
}

// stateLengths contains, for the letter of each algorithm, how many numbers a state has in a reply of the
// fast path.
var stateLengths = [...]int{'t': 6, 'l': 6, 'f': 4, 'c': 5, 's': 4}

// A fastReply is a reply of the fast path of a script, and has one of three forms. First:
// fastReply.now is the server's time, and fastReply.state is the state of the key before the charge. Second: the
// field now is empty, and the field state contains the time and then the state before the charge. Third, if a
// call has charged for its only caller: the field now is empty, and the field state contains only the new state
// of the key.
type fastReply struct{ now, state string }

// parse reads the numbers in text, which are separated by spaces. It stores them in the array numbers,
// beginning at the index n. It returns the index after the last number, or -1 if text contains anything but
// numbers.
func parse(numbers *[8]int64, n int, text string) int {
	for text != "" && n >= 0 {
		number, i, sign := int64(0), 0, int64(1)
		if text[0] == '-' {
			i, sign = 1, -1
		}
		first := i
		for ; i < len(text) && text[i]-'0' <= 9; i++ {
			number = number*10 + int64(text[i]-'0')
		}
		if n == len(numbers) || i == first || i-first > maxDigits || i < len(text) && text[i] != ' ' {
			return -1
		}
		numbers[n] = sign * number
		n, text = n+1, text[min(i+1, len(text)):]
	}
	return n
}

// maxDigits is how many digits a number in a reply may have. Every number with so many digits fits into an
// int64.
const maxDigits = 18

// errNoState is the error for a reply that should be the state of a key, but does not have the form of
// a state.
var errNoState = errors.New("the script replied something that is no state")

// levelIn returns the level of the key according to a reply of the fast path. If the call charged units for its
// only caller, the level is the state after the charge, and the result charged is true. Otherwise the level is
// the state before the charge, at the server's time.
func levelIn(p *plan, reply fastReply) (l level, charged bool, err error) {
	var numbers [8]int64 // first the server's time, unless charged is true; then the state
	n := parse(&numbers, parse(&numbers, 0, reply.now), reply.state)
	length, now, state := stateLengths[p.kind], numbers[0]*1e6+numbers[1], numbers[2:]
	switch {
	case n == 2:
		return level{at: now}, false, nil
	case n == length && p.kind != 's' && reply.now == "":
		charged, state = true, numbers[:]
	case n != 2+length:
		return level{}, false, errNoState
	case p.kind == 's':
		return level{at: now, used: state[1] - state[0], oldest: state[2], newest: state[3]}, false, nil
	}
	state = state[len(p.numbers()):]
	l = level{at: state[0]*1e6 + state[1], used: state[2]}
	if p.kind == 'c' {
		l.prev, l.used = state[2], state[3]
	}
	if !charged {
		l.advance(p, now)
	}
	return l, charged, nil
}
