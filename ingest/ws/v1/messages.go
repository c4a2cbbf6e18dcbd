package v1

import (
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
)

// Form is how millrace.v1 tells of errors.
var Form = conn.Form{
	Error: func(err error, fatal bool) []byte {
		m := errorMessage(err)
		m.Fatal = fatal
		return wire.AppendError(nil, m)
	},
	Resumable: true,
}

// errorMessage is the message of an error.
func errorMessage(err error) *wire.ErrorMessage {
	err = coded.Rename(err, frameFields)
	code := stream.CodeOf(err)
	return &wire.ErrorMessage{Code: string(code), Message: err.Error(), Retryable: code.Retryable(), RetryAfterMS: retryAfter(code)}
}

// frameError is the message of an error that is the ending of a frame of a stream that is not open.
func frameError(h *wire.Header, err error) *wire.ErrorMessage {
	m := errorMessage(err)
	m.SID, m.Seq = &h.SID, &h.Seq
	return m
}

// retryAfter returns the time in ms after which it is worth trying again, the same that HTTP's Retry-After tells; 0 where time
// alone changes nothing, or a credit will tell.
func retryAfter(c stream.Code) int {
	switch c {
	case stream.Overloaded, stream.Unavailable, stream.Draining:
		return 1000
	}
	return 0
}

// sidOf returns the stream that a client's message is about, nil when it is about none.
func sidOf(m wire.Message) *uint32 {
	switch m := m.(type) {
	case *wire.Open:
		return &m.SID
	case *wire.Update:
		return &m.SID
	case *wire.Pause:
		return &m.SID
	case *wire.Resume:
		return &m.SID
	case *wire.Flush:
		return &m.SID
	case *wire.Close:
		return &m.SID
	}
	return nil
}
