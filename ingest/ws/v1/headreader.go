package v1

import (
	"io"

	"millrace/internal/wire"
)

// headReader reads a message whose header was read ahead, so that the kind of the
// message is known even without memory for it.
type headReader struct {
	head [wire.HeaderLen]byte
	n    int // bytes of head that were read ahead
	at   int // bytes of head that were read from headReader
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
