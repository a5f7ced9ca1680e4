// Command histories makes random calls of the limiters and prints a hash of what they returned. A
// history is one random sequence of calls, and its transcript is the text of all calls and results.
//
// The command shows whether a change of the limiters changes their behaviour: build it for two
// checkouts, play the same histories with both builds, and compare what they print. It uses only names
// that the root package exports.
//
//	bench/cmd/histories/build.sh before ../other   # the root package of another checkout
//	bench/cmd/histories/build.sh after             # the root package of this checkout
//	./before -kind rules -count 100000 -seed 1 > before.txt
//	./after -kind rules -count 100000 -seed 1 > after.txt
//	cmp before.txt after.txt
//
// A history depends only on its kind, its number and the seed. Each line of the output describes one
// history: its kind, its number, the number of lines of its transcript, and the hash of its transcript.
// With -print N, the program prints the transcript of history N instead: each call and its result, each
// error, each decision that the observer saw, each call of the store and of custom limiters, and the
// statistics. The command diff can then compare the transcripts of two checkouts.
//
// A transcript must not depend on random numbers of the process. A [ratelimit.Decision.Key] is
// therefore printed as the number of the key within the history, and a receipt as the number of the
// receipt. A breaker (which stops calls to a failing store for a while) pauses for a random time. So in
// a history with a store, the clock never shows an instant at which the length of that pause matters. A
// key's place in a table depends on the key's hash, so build.sh makes a program whose hashes are the
// same in each process.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A player plays the history h: it makes random calls and records what they return.
type player func(t *testing.T, h *history)

// The variable players holds the player for each kind of history.
var players = map[string]player{
	"limiters": playLimiter,
	"rules":    playRules,
	"stores":   playStores,
	"wait":     playWait,
	"reserve":  playReserve,
	"ids":      playIDs,
	"explain":  playExplain,
}

// The variable kinds holds the kinds of histories, in the order of the output.
var kinds = []string{"limiters", "rules", "stores", "wait", "reserve", "ids", "explain"}

// A task says which histories (random sequences of calls) to play, and how many at once.
type task struct {
	kinds       []string
	first, past int // the histories with numbers from first to past-1 are played
	seed        uint64
	workers     int
}

func main() {
	kind := flag.String("kind", "all", "which histories to play: "+strings.Join(kinds, ", ")+", or all")
	count := flag.Int("count", 1000, "how many histories of each kind to play")
	first := flag.Int("first", 0, "the number of the first history")
	seed := flag.Uint64("seed", 1, "what the histories are drawn from")
	workers := flag.Int("workers", 2, "how many histories to play at once")
	shown := flag.Int("print", -1, "print the transcript of the history with this number")
	testing.Init() // needed because the package synctest works only inside a test
	flag.Parse()
	chosen := kinds
	if *kind != "all" {
		chosen = strings.Split(*kind, ",")
	}
	for _, k := range chosen {
		if players[k] == nil {
			fmt.Fprintf(os.Stderr, "histories: there is no kind %q\n", k)
			os.Exit(2)
		}
	}
	runtime.GOMAXPROCS(2) // fixed on all machines, because it decides how many shards a table of keys has
	out := bufio.NewWriter(os.Stdout)
	os.Stdout = os.Stderr // a test writes "PASS" to os.Stdout, which must not be in the output
	inTest(func(t *testing.T) {
		if *shown < 0 {
			run(t, task{chosen, *first, *first + *count, *seed, *workers}, out)
		}
		for _, k := range chosen {
			if *shown >= 0 {
				_, _ = out.WriteString(transcript(t, k, *shown, *seed))
			}
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
	})
}

// inTest calls f as a test, because the package synctest, which some histories need, works only inside
// a test. It then ends the program.
func inTest(f func(t *testing.T)) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "histories", F: f}}, nil, nil)
}

// run plays the chosen histories, and writes a line for each of them to w.
func run(t *testing.T, chosen task, w io.Writer) {
	for _, kind := range chosen.kinds {
		lines := make([]string, chosen.past-chosen.first)
		var next atomic.Int64
		var all sync.WaitGroup
		for range chosen.workers {
			all.Go(func() {
				for i := int(next.Add(1) - 1); i < len(lines); i = int(next.Add(1) - 1) {
					n := chosen.first + i
					text := transcript(t, kind, n, chosen.seed)
					lines[i] = fmt.Sprintf("%s %d %d %016x\n", kind, n, strings.Count(text, "\n"), hashOf(text))
				}
			})
		}
		all.Wait()
		for line := range slices.Values(lines) {
			_, _ = io.WriteString(w, line)
		}
	}
}

// transcript plays one history and returns its transcript.
func transcript(t *testing.T, kind string, number int, seed uint64) string {
	h := newHistory(kind, number, seed)
	players[kind](t, h)
	return string(h.out)
}
