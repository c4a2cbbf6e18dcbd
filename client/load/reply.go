package load

import (
	"encoding/binary"
	"errors"
	"strconv"

	"millrace/stream"
)

// errReply is for a reply that is not of the protocol.
var errReply = errors.New("the server's reply is not understood")

// The binary header's fields, see docs/protocol.
const (
	headerLen  = 32
	kindResult = 3
)

// parseText reads a text reply of plain mode. ok is false for a message that
// belongs to no frame.
func parseText(text []byte) (e Ending, ok bool, err error) {
	e.Outcome = stream.Answered
	err = members(text, func(key, value []byte) error {
		switch string(key) {
		case "seq":
			e.Seq, err = strconv.ParseUint(string(value), 10, 64)
			ok = err == nil
			return err
		case "batch":
			e.Batch, err = strconv.Atoi(string(value))
			return err
		case "partial":
			e.Partial = string(value) == "true"
		case "dropped":
			e.Outcome, e.Reason = stream.Dropped, stream.Reason(plain(value))
		case "error":
			e.Outcome, e.Code = stream.Failed, stream.Internal
			return members(value, func(key, value []byte) error {
				if string(key) == "code" {
					e.Code = stream.Code(plain(value))
				}
				return nil
			})
		}
		return nil
	})
	return e, ok, err
}

// parseBinary reads a binary result: header, length, JSON, tensors.
func parseBinary(b []byte) (e Ending, err error) {
	if len(b) < headerLen+4 || b[0] != 1 || b[1] != kindResult {
		return e, errReply
	}
	e.Outcome, e.Seq = stream.Answered, binary.LittleEndian.Uint64(b[8:])
	front := headerLen + int(binary.LittleEndian.Uint16(b[28:]))
	if len(b) < front+4 {
		return e, errReply
	}
	b = b[front:]
	if uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return e, errReply
	}
	text := b[4 : 4+binary.LittleEndian.Uint32(b)]
	err = members(text, func(key, value []byte) error {
		if string(key) != "parameters" {
			return nil
		}
		return members(value, func(key, value []byte) error {
			switch string(key) {
			case "batch":
				e.Batch, err = strconv.Atoi(string(value))
				return err
			case "partial":
				e.Partial = string(value) == "true"
			}
			return nil
		})
	})
	return e, err
}

// members calls f for each member of a JSON object, and reads no further into
// values than it takes to pass them by: outputs can be long.
func members(b []byte, f func(key, value []byte) error) error {
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return errReply
	}
	if i = space(b, i+1); i < len(b) && b[i] == '}' {
		return nil
	}
	for {
		end := skip(b, i)
		if end < 0 || b[i] != '"' {
			return errReply
		}
		key := b[i+1 : end-1]
		if i = space(b, end); i == len(b) || b[i] != ':' {
			return errReply
		}
		i = space(b, i+1)
		if end = skip(b, i); end < 0 {
			return errReply
		}
		if err := f(key, b[i:end]); err != nil {
			return err
		}
		i = space(b, end)
		switch {
		case i == len(b):
			return errReply
		case b[i] == '}':
			return nil
		case b[i] != ',':
			return errReply
		}
		i = space(b, i+1)
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns where the value that begins at i ends, -1 when it does not.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	depth := 0
	for start := i; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i >= len(b) {
				return -1
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				if i == start {
					return -1
				}
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				if i == start {
					return -1
				}
				return i
			}
		}
	}
	if depth > 0 {
		return -1
	}
	return i
}

// plain is a JSON string without its quotes. The words that it is used for need
// no escapes.
func plain(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return string(value[1 : len(value)-1])
}
