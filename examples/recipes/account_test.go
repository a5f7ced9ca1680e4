package recipes

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// spellings has names that are one account's.
var spellings = map[string][]string{
	"bob": {
		"Bob", "bob", "BOB", "bOb ", " bob", "\tbob\n", "bob\u00a0", "bob\u3000", "\u2003bob", "ｂｏｂ", "ＢＯＢ", "𝐛𝐨𝐛", "ⓑⓞⓑ",
		"b\u200bob", "bob\u200d", "\ufeffbob", "bo\u00adb", "bob\ufe0f", "\u2060bob",
		"bob\x00", "b\u034fob", "b\u3164ob", "\u202ebob", "bob \u200b ", "\u00ad \u00adbob",
	},
	"josé maría": {
		"José María", "JOSÉ MARÍA", "Jose\u0301 Mari\u0301a", "JOSE\u0301  MARI\u0301A", "José\u00a0María", "José \t María ", "ＪＯＳＥ\u0301 María",
		"José\u200b María", "José \u200bMaría", "José \u200b María",
	},
	"strasse": {"Straße", "STRASSE", "STRAẞE", "ſtraſſe"},
	"ǰ":       {"ǰ", "J\u030c", "j\u030c"},
	"ᾳ":       {"ᾼ", "ᾳ", "α\u0345", "Α\u0345"},
	"çğ":      {"ÇĞ", "C\u0327G\u0306", "çG\u0306"},
}

// TestAccountSpellings guesses the password of an account by all spellings of its name.
func TestAccountSpellings(t *testing.T) {
	for account, names := range spellings {
		clock := newClock()
		l, err := ratelimit.New(loginRules(), &ratelimit.Rule{Rate: ratelimit.PerSecond(10_000)}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		key, wrong := accountOf(account), 0
		m := middleware(t, l, httplimit.Config{})
		h := m.Handler(login(m, func(name, password string) bool {
			if name == key && password != "right" {
				wrong++
			}
			return name == key && password == "right"
		}))
		try := func(i int, name, password string) int {
			form := url.Values{"name": {name}, "password": {password}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.RemoteAddr = "198.51.100." + string(rune('0'+i%10)) + ":99" // no address reaches its own limit
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		for i, name := range names {
			require.Equal(t, 200, try(i, name, "right"), "%q is a spelling of %q", name, account)
		}
		for i := range 100 {
			try(i, names[i%len(names)], "wrong")
		}
		require.Equal(t, 10, wrong, "%q: all spellings share 10 guesses an hour", account)
		assert.Equal(t, 429, try(0, names[0], "right"))
		assert.Equal(t, 401, try(0, account+"2", "right"), "another account has guesses of its own")
		clock.Advance(time.Hour)
		assert.Equal(t, 200, try(0, names[len(names)-1], "right"))
	}
}

// TestAccountRunes folds every character of Unicode, but for the planes without characters.
func TestAccountRunes(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r == 0x30000 {
			r = 0xE0000
		}
		if r == 0xE1000 {
			break
		}
		name := "a" + string(r) + "b"
		folded := accountOf(name)
		if again := accountOf(folded); again != folded {
			t.Fatalf("%U: %q becomes %q, and that becomes %q", r, name, folded, again)
		}
		if other := accountOf("a" + string(unicode.SimpleFold(r)) + "b"); other != folded {
			t.Fatalf("%U: %q becomes %q, and in the other case %q", r, name, folded, other)
		}
	}
}

// TestAccountsApart has names that are not the same account's.
func TestAccountsApart(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"bob", "bo b", "bоb" /* with a Cyrillic letter */, "böb", "bob2", "bob@a.example", "bob@b.example", ""} {
		folded := accountOf(name)
		before, taken := seen[folded]
		assert.False(t, taken, "%q and %q are two accounts", before, name)
		seen[folded] = name
	}
}
