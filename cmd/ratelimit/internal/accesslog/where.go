package accesslog

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A Where is a condition on one column of a log, such as status!=429.
type Where struct {
	Column string // name of the column
	op     string // =, !=, <, <=, > or >=
	value  string
	number float64 // the value as a number
	isNum  bool    // whether the value is a number
}

// operators are the operators of a Where. The longer ones come first, so that "<=" is not read as "<".
var operators = []string{"!=", "<=", ">=", "=", "<", ">"}

// ParseWhere reads a condition from a text such as "status!=429". The operators are =, !=, <, <=, > and >=. If the value
// and the text of the column are numbers, they are compared as numbers. Other texts can only be compared with = and !=.
func ParseWhere(text string) (w Where, err error) {
	i := strings.IndexAny(text, "!<>=")
	if i <= 0 {
		return w, errors.New("must be a column, =, !=, <, <=, > or >=, and a value, such as status!=429")
	}
	w.Column = strings.TrimSpace(text[:i])
	at := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(text[i:], op) })
	if at < 0 {
		return w, errors.New("must have one of the operators =, !=, <, <=, > and >=")
	}
	w.op = operators[at]
	w.value = strings.TrimSpace(text[i+len(w.op):])
	w.number, err = strconv.ParseFloat(w.value, 64)
	if w.isNum = err == nil; !w.isNum && w.op != "=" && w.op != "!=" {
		return w, errors.New("must compare with a number")
	}
	return w, nil
}

// holds reports whether the text of the column meets the condition.
func (w *Where) holds(text []byte) bool {
	if w.isNum {
		if n, err := strconv.ParseFloat(string(text), 64); err == nil {
			switch w.op {
			case "=":
				return n == w.number
			case "!=":
				return n != w.number
			case "<":
				return n < w.number
			case "<=":
				return n <= w.number
			case ">":
				return n > w.number
			}
			return n >= w.number
		}
	}
	switch w.op {
	case "=":
		return string(text) == w.value
	case "!=":
		return string(text) != w.value
	}
	return false
}
