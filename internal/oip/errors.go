package oip

import (
	"errors"
	"strconv"

	"millrace/stream/coded"
)

// ErrMemory is wrapped by the error of a tensor for which alloc returned no memory.
var ErrMemory = errors.New("no memory")

// ErrNotJSON is wrapped by the error of a value without a notation in JSON.
var ErrNotJSON = errors.New("no JSON")

// noMemory is the error for tensor data at field when alloc returned fewer than n bytes.
func noMemory(field string, n int) error {
	return &coded.Error{Code: coded.Overloaded, Field: field, Msg: "no memory for " + itoa(n) +
		" bytes (memory.budget): try later, or raise the setting", Err: ErrMemory}
}

// quoted returns a name in single quotes, the quotes used by other servers of the protocol.
func quoted(name string) string {
	q := strconv.Quote(name)
	return "'" + q[1:len(q)-1] + "'"
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
func itoa(n int) string    { return strconv.Itoa(n) }
func index(n int) string   { return "[" + strconv.Itoa(n) + "]" }

// shapeText writes a shape as JSON, and truncates a long shape.
func shapeText(shape []int) string {
	b := []byte{'['}
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		if i == 8 {
			b = append(b, "..."...)
			break
		}
		b = strconv.AppendInt(b, int64(d), 10)
	}
	return string(append(b, ']'))
}
