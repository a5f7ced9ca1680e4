package confmap

import (
	"strconv"
	"strings"
)

// Fold returns name in the form in which names are compared: with the letters from A to Z in lower
// case, and without "_" and "-". TokenBucket, token_bucket and TOKEN-BUCKET are thus equal. Fold
// reads only the first MaxName bytes; the caller must refuse a longer name.
func Fold(name string) string {
	name = name[:min(len(name), MaxName)]
	if !strings.ContainsFunc(name, func(r rune) bool { return r == '_' || r == '-' || 'A' <= r && r <= 'Z' }) {
		return name
	}
	return string(appendFolded(make([]byte, 0, len(name)), name))
}

// appendFolded appends name to b in the form of [Fold].
func appendFolded(b []byte, name string) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_' || c == '-':
		case 'A' <= c && c <= 'Z':
			b = append(b, c+'a'-'A')
		default:
			b = append(b, c)
		}
	}
	return b
}

// longestCompared is the largest length, in bytes, of a name that Nearest compares letter by letter.
const longestCompared = 50

// Nearest returns the known name that a misspelt name was probably meant to be, or the empty string. The
// second parameter lists the known names. Nearest returns the known name with the fewest typing errors, if
// there is at most one error in three letters. Otherwise, it returns the first known name that contains the
// misspelt name, as TokenBucket contains "bucket". Differences that [Fold] removes do not count as errors.
func Nearest[S ~string](name string, names []S) (best S) {
	wrong := Fold(name)
	if wrong == "" || len(name) > longestCompared {
		return ""
	}
	fewest := max(1, len(wrong)/3) + 1
	for _, s := range names {
		if len(s) > longestCompared {
			continue
		}
		known := Fold(string(s))
		if len(known)+fewest <= len(wrong) || len(known) >= len(wrong)+fewest {
			continue // the longer name has too many additional letters, and each of them is an error
		}
		if errors := typingErrors(wrong, known); errors < fewest {
			best, fewest = s, errors
		}
	}
	if best != "" || len(wrong) < 4 {
		return best
	}
	for _, s := range names {
		if strings.Contains(Fold(string(s)), wrong) {
			return s
		}
	}
	return ""
}

// DidYouMean returns a text for an error about a misspelt name, such as `; did you mean "TokenBucket"?`. The text
// suggests the known name that [Nearest] returns. If there is none, the text is empty.
func DidYouMean[S ~string](name string, names []S) string {
	if near := Nearest(name, names); near != "" {
		return "; did you mean " + Quote(string(near)) + "?"
	}
	return ""
}

// typingErrors returns the smallest number of typing errors that turn one name into another. A typing
// error is a letter that is missing, additional or wrong, or two neighbouring letters in the wrong order.
// Neither name may be longer than longestCompared.
//
// After the loop over j, row[j] is the number of errors between the beginnings b[:j] and a[:i+1]. The
// array named last has the same numbers for a[:i], and the array named before has them for a[:i-1].
func typingErrors(a, b string) int {
	var rows [3][longestCompared + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(last[j+1], row[j]) + 1
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], last[j])
			} else {
				row[j+1] = min(row[j+1], last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// List returns the entries of names, each in quotes, separated by commas.
func List[S ~string](names []S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(string(name))
	}
	return strings.Join(quoted, ", ")
}
