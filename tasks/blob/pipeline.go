package blob

import (
	"hash"
	"slices"
	"sync"
	"sync/atomic"
)

// pipeline writes the bytes of a large blob in one goroutine, and computes the digest in a second goroutine, while the
// caller receives further bytes: the three take about the same time.
type pipeline struct {
	piece            *[]byte // being filled; nil = none
	writing, hashing chan *[]byte
	done             chan struct{}
	failed           atomic.Pointer[error] // of the writing
}

// A blob has a pipeline from largeBlob bytes. Each goroutine has a piece at work, and one piece waits.
const (
	largeBlob = 1 << 20
	pieceSize = 256 << 10
	// writeSize is the largest write. For each processor, Linux keeps free blocks of memory of up to 32 KiB at hand. A
	// larger write takes a larger block, in a virtual machine often a block that the host has to supply first.
	writeSize = 32 << 10
)

var pieces = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize); return &b }}

// newPipeline starts the goroutines, which end with end.
func newPipeline(write func([]byte) (int, error), digest hash.Hash) *pipeline {
	p := &pipeline{writing: make(chan *[]byte, 1), hashing: make(chan *[]byte, 1), done: make(chan struct{})}
	go func() {
		defer close(p.hashing)
		for piece := range p.writing {
			for b := range slices.Chunk(*piece, writeSize) {
				if p.err() != nil {
					break
				}
				if _, err := write(b); err != nil {
					p.failed.Store(&err)
				}
			}
			p.hashing <- piece
		}
	}()
	go func() {
		defer close(p.done)
		for piece := range p.hashing {
			digest.Write(*piece)
			pieces.Put(piece)
		}
	}()
	return p
}

// err returns the error of the writing so far.
func (p *pipeline) err() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Write implements io.Writer. The bytes are copied. An error may belong to the bytes of an earlier call.
func (p *pipeline) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := p.err(); err != nil {
			return n, err
		}
		if p.piece == nil {
			p.piece = pieces.Get().(*[]byte)
			*p.piece = (*p.piece)[:0]
		}
		more := min(len(b)-n, pieceSize-len(*p.piece))
		*p.piece = append(*p.piece, b[n:n+more]...)
		if n += more; len(*p.piece) == pieceSize {
			p.writing <- p.piece
			p.piece = nil
		}
	}
	return n, nil
}

// end waits until all bytes are written and part of the digest, and returns the error of the writing.
func (p *pipeline) end() error {
	if p.piece != nil {
		p.writing <- p.piece
	}
	close(p.writing)
	<-p.done
	return p.err()
}
