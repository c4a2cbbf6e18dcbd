package replies

import (
	"strconv"

	"millrace/ingest/ws/conn"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Call is the part of a call repeated in replies. In plain mode Call is empty.
type Call struct {
	ID  string // its id, or ""
	Key string // its parameter key, or ""
}

// Form is the form of errors in plain mode and calls.
var Form = conn.Form{Error: func(err error, _ bool) []byte { return Error(Call{}, err) }}

// Error returns the message of an error without a frame.
func Error(of Call, err error) []byte {
	return append(wire.AppendPlainError(of.Append([]byte{'{'}), err), '}')
}

// Done returns the message about the end of a pulled video.
func Done(of Call, frames, drops uint64) []byte {
	text := append(of.Append([]byte{'{'}), `"done":true,"frames":`...)
	text = strconv.AppendUint(text, frames, 10)
	text = strconv.AppendUint(append(text, `,"drops":`...), drops, 10)
	return append(text, '}')
}

// AppendSeq appends the beginning of a message about a frame.
func AppendSeq(dst []byte, of Call, seq uint64) []byte {
	return strconv.AppendUint(append(of.Append(append(dst, '{')), `"seq":`...), seq, 10)
}

// AppendDrop appends the message about a dropped frame.
func AppendDrop(dst []byte, of Call, seq uint64, why stream.Reason) []byte {
	dst = append(AppendSeq(dst, of, seq), `,"dropped":"`...)
	return append(append(dst, why...), '"', '}')
}

// AppendFailed appends the message about a failed frame.
func AppendFailed(dst []byte, of Call, seq uint64, err error) []byte {
	return append(wire.AppendPlainError(append(AppendSeq(dst, of, seq), ','), err), '}')
}

// Append appends the call's members of a message, each followed by a comma.
func (of Call) Append(dst []byte) []byte {
	if of.ID != "" {
		dst = append(oip.AppendString(append(dst, `"id":`...), of.ID), ',')
	}
	if of.Key != "" {
		dst = append(oip.AppendString(append(dst, `"key":`...), of.Key), ',')
	}
	return dst
}
