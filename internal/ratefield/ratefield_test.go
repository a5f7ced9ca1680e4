package ratefield

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestExhausted reads fields that are valid by RFC 9651. A "|" stands between two lines of a field.
func TestExhausted(t *testing.T) {
	for lines, want := range map[string]int64{
		"":                    0,
		"   ":                 0,
		`"default";r=0;t=30`:  30,
		`"default";r=50;t=30`: 0,
		`default;a=0;w=30`:    30,
		`*;a=0;w=30`:          30,
		`"a";r=0;t=30;w=60`:   30,
		`"a";r=1;a=0;t=30`:    30,
		`"a";r=0;t=-30;w=7`:   7,
		`"a";r=0;t=3.0;w=7`:   7,
		`"a";r=0`:             0,
		`"a";t=30`:            0,
		`"a";r=0.0;t=30`:      0,
		`"a";r="0";t=30`:      0,
		`"a";r=-0;t=30`:       30,
		`"a";r=000;t=030`:     30,
		`"a";r=-1;t=30`:       0,
		`"a";r;t=30`:          0,
		`"a";r=0;t=30;t=5`:    5,
		`"a";r=0;t=30;t`:      0,
		`"a";r=0;r=1;t=30`:    0,
		`"a"; r=0;  t=30`:     30,
		`"a";r=0;t=30, "b";r=0;t=60,"c";r=9;t=99`: 60,
		"\"a\";r=0;t=30 \t,\t \"b\";r=0;t=60 ":    60,
		`"a";r=0;t=30|"b";r=0;t=60`:               60, // two lines
		`"a";r=0;t=101;x, "b";r=0;t=9`:            9,
		`"a\"\\";r=0;t=30`:                        30,
		`"a";pk=:sdfjLJUOUH==:;r=0;t=30`:          30,
		`"a";x=?1;y=?0;z=@-5;d=-1.125;r=0;t=3`:    3,
		`"a";x=%"f%c3%bc";r=0;t=3`:                3,
		`"a";x=%"%00";r=0;t=3`:                    3,
		`"a";*-_.9=tok/en:*;r=0;t=3`:              3,
		`"a";r=0;t=999999999999999`:               0, // above the limit
	} {
		got, ok := Exhausted(strings.Split(lines, "|"), 100)
		assert.True(t, ok, "%q", lines)
		assert.Equal(t, want, got, "%q", lines)
	}
	got, ok := Exhausted(nil, 100)
	assert.True(t, ok)
	assert.Zero(t, got)
}

// TestMalformed reads fields that RFC 9651 does not allow.
func TestMalformed(t *testing.T) {
	for _, lines := range []string{
		`"a";r=0;t=9999999999999999`,
		`"a`,
		`"a\`,
		`"a\n"`,
		"\"\x7f\"",
		`"ä"`,
		`"a",`,
		`"a", `,
		`,"a"`,
		`"a" "b"`,
		`"a"|`, // an empty second line
		`"a" ;r=0`,
		"\t\"a\"",
		`limit=100, remaining=0`,
		`100;w=60`,
		`1.5`,
		`?1`,
		`("a" "b");r=0;t=9`,
		`"a";`,
		`"a";R=0`,
		`"a";r=`,
		`"a";r=-`,
		`"a";r=0.`,
		`"a";r=0.1234`,
		`"a";r=1234567890123.1`,
		`"a";r=(1)`,
		`"a";x=?2`,
		`"a";x=?`,
		`"a";x=@1.0`,
		`"a";x=:a b:`,
		"\"a\";x=:YQ\n==:",
		`"a";x=:YQ==`,
		`"a";x=%`,
		`"a";x=%"`,
		`"a";x=%"%C3%BC"`,
		`"a";x=%"%c3"`,
		`"a";x=%"%c`,
		"\"a\";x=%\"\n\"",
		"\x00",
		"\"a\";\x00=1",
	} {
		got, ok := Exhausted(strings.Split(lines, "|"), 100)
		assert.False(t, ok, "%q", lines)
		assert.Zero(t, got, "%q", lines)
	}
}
