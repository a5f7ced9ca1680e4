package ratelimit

import "strings"

// longestName is how long a name may be, in bytes, to be compared with others.
const longestName = 50

// nearest returns the one of names that name is likely to have been meant for, or
// nothing: the first of those that take the fewest typing errors, if these are few,
// or else the first that name is a part of.
func nearest[S ~string](name string, names []S) (best S) {
	wrong := plain(name)
	if wrong == "" || len(name) > longestName {
		return ""
	}
	fewest := max(1, len(wrong)/3) + 1
	for _, s := range names {
		if len(s) > longestName || len(s)+fewest < len(wrong) || len(plain(string(s))) >= len(wrong)+fewest {
			continue // too many letters differ
		}
		if errors := typingErrors(wrong, plain(string(s))); errors < fewest {
			best, fewest = s, errors
		}
	}
	if best != "" || len(wrong) < 4 {
		return best
	}
	for _, s := range names {
		if strings.Contains(plain(string(s)), wrong) {
			return s
		}
	}
	return ""
}

// typingErrors returns how many letters are missing, too many, wrong or in the
// wrong order in a, for b. Neither is longer than longestName.
func typingErrors(a, b string) int {
	var rows [3][longestName + 1]int
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
