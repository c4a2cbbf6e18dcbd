// Package condition reads comparisons of a number with a fixed number, such as count(boxes) > 0.
//
// The package must not know what the functions and names mean.
package condition

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Condition compares a function of something named with a fixed number.
type Condition struct {
	Func  string
	Of    string // the name
	Op    string // > >= < <= == !=
	Value float64
}

var operators = []string{">=", "<=", "==", "!=", ">", "<"} // longer operators first

// Parse reads FUNC(NAME) OP NUMBER with one of the functions.
func Parse(text string, functions ...string) (c Condition, ok bool) {
	name, rest, open := strings.Cut(text, "(")
	of, rest, closed := strings.Cut(rest, ")")
	c.Func, c.Of = strings.TrimSpace(name), strings.TrimSpace(of)
	if !open || !closed || c.Of == "" || !slices.Contains(functions, c.Func) {
		return Condition{}, false
	}
	rest = strings.TrimSpace(rest)
	for _, op := range operators {
		number, found := strings.CutPrefix(rest, op)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			break
		}
		c.Op, c.Value = op, v
		return c, true
	}
	return Condition{}, false
}

// String returns the condition in the form of Parse.
func (c Condition) String() string { return fmt.Sprintf("%s(%s) %s %v", c.Func, c.Of, c.Op, c.Value) }

// Holds compares a number with the fixed number.
func (c Condition) Holds(v float64) bool {
	switch c.Op {
	case ">":
		return v > c.Value
	case ">=":
		return v >= c.Value
	case "<":
		return v < c.Value
	case "<=":
		return v <= c.Value
	case "==":
		return v == c.Value
	}
	return v != c.Value
}
