package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"time"

	"millrace/internal/oip"
	"millrace/stream/coded"
)

// Plain is a text message of a server in plain mode, where a connection is one stream without control messages: the
// ending of a frame, a part of the frame's result, or, without Seq, an error of the whole stream.
type Plain struct {
	Seq     *uint64     `json:"seq,omitempty"`
	Model   string      `json:"model,omitempty" want:"name"`
	Partial bool        `json:"partial,omitempty"`
	Dropped string      `json:"dropped,omitempty" want:"word"` // stream.Reason
	Error   *PlainError `json:"error,omitempty"`
	Timing  Timing      `json:"timing,omitzero"`
	Width   int         `json:"width,omitempty" want:"side"` // of the frame as sent, upright
	Height  int         `json:"height,omitempty" want:"side"`
	Batch   int         `json:"batch,omitempty"` // rows of the frame's batch

	// Outputs and Params are as in Result.
	Outputs json.RawMessage `json:"outputs,omitempty" want:"array"`
	Params  json.RawMessage `json:"parameters,omitempty" want:"object"`
}

// PlainError is the error of a frame or a stream in plain mode.
type PlainError struct {
	Code         string `json:"code" want:"must,word"` // stream.Code
	Message      string `json:"message" want:"must"`
	Retryable    bool   `json:"retryable,omitempty"`
	RetryAfterMS int    `json:"retry_after_ms,omitempty"` // 0 = unknown
}

// RetryAfterMS returns the time in ms after which the client should try again, or 0 if unknown: a client whose frame
// exceeded the credit must wait for the next credit_limit.
func RetryAfterMS(err error) int {
	wait := coded.RetryAfter(err)
	if e := (*coded.Error)(nil); coded.CodeOf(err) == coded.FlowControl && errors.As(err, &e) && e.After == 0 {
		return 0
	}
	return int((wait + time.Millisecond - 1).Milliseconds())
}

// AppendPlainError appends the member "error" of a message in plain mode: a PlainError with its name.
func AppendPlainError(dst []byte, err error) []byte {
	code := coded.CodeOf(err)
	dst = oip.AppendString(append(dst, `"error":{"code":`...), string(code))
	dst = oip.AppendString(append(dst, `,"message":`...), err.Error())
	if code.Retryable() {
		dst = append(dst, `,"retryable":true`...)
	}
	if ms := RetryAfterMS(err); ms > 0 {
		dst = strconv.AppendInt(append(dst, `,"retry_after_ms":`...), int64(ms), 10)
	}
	return append(dst, '}')
}

var plainReader = readerOf(reflect.TypeFor[Plain]())

// ParsePlain reads a text message of a server in plain mode into m. Unknown members are ignored. The error is an
// *Error with the field.
func ParsePlain(text []byte, m *Plain) error {
	*m = Plain{}
	v, fault := checkText(text, MaxServerText)
	if fault != nil {
		return fault
	}
	return plainReader.read(v, reflect.ValueOf(m).Elem())
}
