package blob

import (
	"crypto/sha256"
	"hash"
	"sync"
)

// hasher computes the SHA-256 of a blob, of a large blob in a goroutine beside the writing of the file: both take about
// the same time. The zero value is not ready.
type hasher struct {
	hash.Hash
	pieces chan *[]byte // nil = no goroutine
	done   chan struct{}
	size   int64
}

// A blob has a goroutine from hashBeside bytes, with at most hashWaiting pieces of hashPiece bytes.
const (
	hashBeside  = 1 << 20
	hashPiece   = 64 << 10
	hashWaiting = 8
)

var hashPieces = sync.Pool{New: func() any { b := make([]byte, 0, hashPiece); return &b }}

func newHasher() *hasher { return &hasher{Hash: sha256.New()} }

// Write implements io.Writer. The bytes are copied.
func (h *hasher) Write(b []byte) (int, error) {
	if h.size += int64(len(b)); h.size < hashBeside {
		return h.Hash.Write(b)
	}
	if h.pieces == nil {
		h.begin()
	}
	n := len(b)
	for len(b) > 0 {
		piece := hashPieces.Get().(*[]byte)
		*piece = append((*piece)[:0], b[:min(len(b), hashPiece)]...)
		b = b[len(*piece):]
		h.pieces <- piece
	}
	return n, nil
}

// begin starts the goroutine, which ends with end.
func (h *hasher) begin() {
	h.pieces, h.done = make(chan *[]byte, hashWaiting), make(chan struct{})
	go func(pieces chan *[]byte, done chan struct{}) {
		defer close(done)
		for piece := range pieces {
			h.Hash.Write(*piece)
			hashPieces.Put(piece)
		}
	}(h.pieces, h.done)
}

// Sum implements hash.Hash. Further bytes may follow.
func (h *hasher) Sum(b []byte) []byte {
	h.end()
	return h.Hash.Sum(b)
}

// end waits until all bytes are part of the digest, and ends the goroutine.
func (h *hasher) end() {
	if h.pieces != nil {
		close(h.pieces)
		<-h.done
		h.pieces = nil
	}
}
