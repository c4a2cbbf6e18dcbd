package v1

import (
	"io"

	"millrace/internal/wire"
)

// headReader reads a message after its header was read ahead, so that the kind of the message is known even without
// memory for the message.
type headReader struct {
	head [wire.HeaderLen]byte
	n    int // bytes of head read ahead
	at   int // bytes of head already returned
	rest io.Reader
}

// Read implements io.Reader.
func (h *headReader) Read(p []byte) (int, error) {
	if h.at < h.n {
		n := copy(p, h.head[h.at:h.n])
		h.at += n
		return n, nil
	}
	return h.rest.Read(p)
}
