package confmap

import (
	"strconv"
	"strings"
)

// Fold returns name in the form in which names are compared: the letters from A to Z in lower
// case, and without "_" and "-", so that TokenBucket, token_bucket and TOKEN-BUCKET are equal. It
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

// longestCompared is the length, in bytes, up to which Nearest compares names letter by letter.
const longestCompared = 50

// Nearest returns the one of names that name was probably meant to be, or the empty string. It is
// the one with the fewest typing errors, if these are at most one in three letters. Otherwise, it
// is the first one that contains name, as TokenBucket contains "bucket". Names that [Fold] makes
// equal are the same.
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
			continue // each letter of the difference is an error
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

// typingErrors returns the smallest number of typing errors that make a out of b. A typing error
// is a letter that is missing, too many or wrong, or two neighbours in the wrong order. Neither a
// nor b is longer than longestCompared.
//
// After the loop over j, row[j] is the number of errors that make the first i+1
// letters of a of the first j letters of b; last and before are the rows of i and i-1
// letters.
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

// List returns names in quotes, separated by commas.
func List[S ~string](names []S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(string(name))
	}
	return strings.Join(quoted, ", ")
}
