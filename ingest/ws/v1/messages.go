package v1

import (
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
)

// Form is the form of errors in millrace.v1.
var Form = conn.Form{
	Error: func(err error, fatal bool) []byte {
		m := errorMessage(err)
		m.Fatal = fatal
		return wire.AppendError(nil, m)
	},
	Resumable: true,
}

// errorMessage returns the message of an error.
func errorMessage(err error) *wire.ErrorMessage {
	err = coded.Rename(err, frameFields)
	code := stream.CodeOf(err)
	return &wire.ErrorMessage{Code: string(code), Message: err.Error(), Retryable: code.Retryable(),
		RetryAfterMS: wire.RetryAfterMS(err)}
}

// frameError returns the message of an error as the ending of a frame without an open stream.
func frameError(h *wire.Header, err error) *wire.ErrorMessage {
	m := errorMessage(err)
	m.SID, m.Seq = &h.SID, &h.Seq
	return m
}

// sidOf returns the stream of a client's message, or nil.
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
