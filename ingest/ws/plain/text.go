package plain

import (
	"strconv"

	"millrace/ingest/ws/conn"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// callID is the part of a call repeated in replies. In plain mode callID is empty.
type callID struct {
	ID  string // its id, or ""
	Key string // its parameter key, or ""
}

// Form is the form of errors in plain mode and calls.
var Form = conn.Form{Error: func(err error, _ bool) []byte { return errorText(callID{}, err) }}

// errorText returns the message of an error without a frame.
func errorText(of callID, err error) []byte {
	return append(wire.AppendPlainError(of.append([]byte{'{'}), err), '}')
}

// doneText returns the message about the end of a pulled video.
func doneText(of callID, frames, drops uint64) []byte {
	text := append(of.append([]byte{'{'}), `"done":true,"frames":`...)
	text = strconv.AppendUint(text, frames, 10)
	text = strconv.AppendUint(append(text, `,"drops":`...), drops, 10)
	return append(text, '}')
}

// appendSeq appends the beginning of a message about a frame.
func appendSeq(dst []byte, of callID, seq uint64) []byte {
	return strconv.AppendUint(append(of.append(append(dst, '{')), `"seq":`...), seq, 10)
}

// appendDrop appends the message about a dropped frame.
func appendDrop(dst []byte, of callID, seq uint64, why stream.Reason) []byte {
	dst = append(appendSeq(dst, of, seq), `,"dropped":"`...)
	return append(append(dst, why...), '"', '}')
}

// appendFailed appends the message about a failed frame.
func appendFailed(dst []byte, of callID, seq uint64, err error) []byte {
	return append(wire.AppendPlainError(append(appendSeq(dst, of, seq), ','), err), '}')
}

// append appends the call's members of a message, each followed by a comma.
func (of callID) append(dst []byte) []byte {
	if of.ID != "" {
		dst = append(oip.AppendString(append(dst, `"id":`...), of.ID), ',')
	}
	if of.Key != "" {
		dst = append(oip.AppendString(append(dst, `"key":`...), of.Key), ',')
	}
	return dst
}
