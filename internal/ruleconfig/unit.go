package ruleconfig

// UnitForm says what a unit that [ValidUnit] refuses must be.
const UnitForm = `must have at most 64 bytes: lower-case letters, digits, "-", "_" and "."`

// ValidUnit reports whether a rule can count units with this name. The empty name is that of requests.
func ValidUnit(unit string) bool {
	for i := range len(unit) {
		switch c := unit[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return len(unit) <= 64
}
