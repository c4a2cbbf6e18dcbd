package replies

import (
	"strconv"

	"millrace/ingest/ws/conn"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Form is the form of errors in plain mode and calls.
var Form = conn.Form{Error: func(err error, _ bool) []byte { return Error("", err) }}

// Error returns the message of an error that belongs to no frame; id is that of its
// call, or "".
func Error(id string, err error) []byte {
	return append(wire.AppendPlainError(appendID([]byte{'{'}, id), err), '}')
}

// Done returns the message that a pulled video has ended.
func Done(id string, frames, drops uint64) []byte {
	text := append(appendID([]byte{'{'}, id), `"done":true,"frames":`...)
	text = strconv.AppendUint(text, frames, 10)
	text = strconv.AppendUint(append(text, `,"drops":`...), drops, 10)
	return append(text, '}')
}

// AppendSeq appends the beginning of a message about a frame.
func AppendSeq(dst []byte, id string, seq uint64) []byte {
	return strconv.AppendUint(append(appendID(append(dst, '{'), id), `"seq":`...), seq, 10)
}

// AppendDrop appends the message about a dropped frame.
func AppendDrop(dst []byte, id string, seq uint64, why stream.Reason) []byte {
	dst = append(AppendSeq(dst, id, seq), `,"dropped":"`...)
	return append(append(dst, why...), '"', '}')
}

// AppendFailed appends the message about a frame that ended with an error.
func AppendFailed(dst []byte, id string, seq uint64, err error) []byte {
	return append(wire.AppendPlainError(append(AppendSeq(dst, id, seq), ','), err), '}')
}

// appendID appends the id of the message's call.
func appendID(dst []byte, id string) []byte {
	if id == "" {
		return dst
	}
	return append(oip.AppendString(append(dst, `"id":`...), id), ',')
}
