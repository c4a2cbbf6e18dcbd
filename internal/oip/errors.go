package oip

import (
	"encoding/json"
	"errors"
	"strconv"
)

// ErrMemory is wrapped by the error for a tensor for which alloc gave no memory.
var ErrMemory = errors.New("no memory")

// Error says what is wrong with a message: Field is the path of the offending
// value, such as `inputs[0].shape[2]`, or "" for the message as a whole; Msg
// says what was found and what is expected.
type Error struct {
	Field string
	Msg   string

	err error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return e.Field + ": " + e.Msg
}

// Unwrap gives the cause where there is one, such as ErrMemory.
func (e *Error) Unwrap() error { return e.err }

// AppendError appends the error reply `{"error": MSG}`.
func AppendError(dst []byte, msg string) []byte {
	dst = append(dst, `{"error":`...)
	dst = AppendString(dst, msg)
	return append(dst, '}')
}

// DecodeError reads an error reply. ok is false for a body that is not one.
func DecodeError(body []byte) (msg string, ok bool) {
	var reply struct {
		Error *string `json:"error"`
	}
	if json.Unmarshal(body, &reply) != nil || reply.Error == nil {
		return "", false
	}
	return *reply.Error, true
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
func itoa(n int) string    { return strconv.Itoa(n) }
func index(n int) string   { return "[" + strconv.Itoa(n) + "]" }

// shapeText writes a shape as JSON does, cut short where it is long.
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
