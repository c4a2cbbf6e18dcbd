// Package ctxio ends reads with a context.
package ctxio

import (
	"context"
	"io"
)

// Reader returns a reader of r until ctx ends, and of the cause of the end afterwards. A Read that waits in r is not
// interrupted.
func Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{ctx, r} }

type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
