package replies

import (
	"strconv"

	"millrace/ingest/ws/conn"
	"millrace/internal/oip"
	"millrace/stream"
)

// Form is how plain mode and calls tell of errors.
var Form = conn.Form{Error: func(err error, _ bool) []byte { return Error("", err) }}

// Error is the message of an error that belongs to no frame; id is that of the call it answers, or "".
func Error(id string, err error) []byte {
	return append(appendError(appendID([]byte{'{'}, id), err), '}')
}

// Done is the message that a pulled video has ended.
func Done(id string, frames, drops uint64) []byte {
	text := append(appendID([]byte{'{'}, id), `"done":true,"frames":`...)
	text = strconv.AppendUint(text, frames, 10)
	text = strconv.AppendUint(append(text, `,"drops":`...), drops, 10)
	return append(text, '}')
}

// AppendSeq begins the message about a frame.
func AppendSeq(dst []byte, id string, seq uint64) []byte {
	return strconv.AppendUint(append(appendID(append(dst, '{'), id), `"seq":`...), seq, 10)
}

// AppendDrop appends the message of a frame that was dropped.
func AppendDrop(dst []byte, id string, seq uint64, why stream.Reason) []byte {
	dst = append(AppendSeq(dst, id, seq), `,"dropped":"`...)
	return append(append(dst, why...), '"', '}')
}

// AppendFailed appends the message of a frame that ended with an error.
func AppendFailed(dst []byte, id string, seq uint64, err error) []byte {
	return append(appendError(append(AppendSeq(dst, id, seq), ','), err), '}')
}

// appendID begins the members of a message with the id of the call that it answers.
func appendID(dst []byte, id string) []byte {
	if id == "" {
		return dst
	}
	return append(oip.AppendString(append(dst, `"id":`...), id), ',')
}

func appendError(dst []byte, err error) []byte {
	code := stream.CodeOf(err)
	dst = append(dst, `"error":{"code":"`...)
	dst = append(dst, code...)
	dst = append(dst, `","message":`...)
	dst = oip.AppendString(dst, err.Error())
	if code.Retryable() {
		dst = append(dst, `,"retryable":true`...)
	}
	return append(dst, '}')
}
