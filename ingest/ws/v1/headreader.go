package v1

import (
	"io"

	"millrace/internal/wire"
)

// headReader reads a message whose header was read ahead: a frame for which there is no memory can still be told from others.
type headReader struct {
	head [wire.HeaderLen]byte
	n    int // bytes of head that are there
	at   int // and were read again
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
