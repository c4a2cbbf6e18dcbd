package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/minio/minio-go/v7"

	"millrace/internal/ctxio"
)

// Open implements Store. A small blob is read at once. The reader of a large blob continues after a broken connection;
// all bytes are of one version of the blob. The end of ctx after Open does not end the reader.
func (s *S3) Open(ctx context.Context, key string) (Reader, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	reading, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &s3Reader{s3: s, ctx: reading, cancel: cancel, key: key}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	err := r.begin(0)
	if err == nil && r.size <= smallBlob {
		b := make([]byte, r.size)
		if _, err = io.ReadFull(r, b); err == nil {
			stop()
			_ = r.Close()
			return memoryReader{bytes.NewReader(b)}, nil
		}
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// memoryReader reads a small blob.
type memoryReader struct{ *bytes.Reader }

// Close implements io.Closer.
func (memoryReader) Close() error { return nil }

// s3Reader reads one blob of S3.
type s3Reader struct {
	s3     *S3
	ctx    context.Context
	cancel context.CancelCauseFunc
	key    string
	size   int64
	etag   string // of the version that is read

	at     int64         // of the next byte for the caller
	body   io.ReadCloser // nil = none is open
	bodyAt int64         // of the next byte of body
	broken int           // connections in sequence that broke
}

// begin opens the blob at an offset.
func (r *s3Reader) begin(at int64) error {
	var o minio.GetObjectOptions
	if r.etag != "" {
		if err := errors.Join(o.SetMatchETag(r.etag), o.SetRange(at, r.size-1)); err != nil {
			return err
		}
	}
	body, info, _, err := r.s3.client.GetObject(r.ctx, r.s3.o.Bucket, r.s3.object(r.key), o)
	if err != nil {
		return r.s3.failed(r.ctx, err)
	}
	if r.etag == "" {
		r.etag, r.size = info.ETag, info.Size
	}
	r.body, r.bodyAt = body, at
	return nil
}

// drop closes the open body.
func (r *s3Reader) drop() {
	if r.body != nil {
		_ = r.body.Close()
		r.body = nil
	}
}

// Read implements io.Reader.
func (r *s3Reader) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	for {
		if r.body != nil && r.bodyAt != r.at {
			r.drop()
		}
		if r.body == nil {
			if err := r.begin(r.at); err != nil {
				return 0, err
			}
		}
		n, err := r.body.Read(b[:min(int64(len(b)), r.size-r.at)])
		r.at, r.bodyAt = r.at+int64(n), r.bodyAt+int64(n)
		if n > 0 {
			r.broken = 0
		}
		if err == nil || n > 0 && r.at == r.size {
			return n, nil
		}
		r.drop()
		if n > 0 {
			return n, nil
		}
		if r.broken++; r.broken >= s3Tries || r.ctx.Err() != nil {
			return 0, r.s3.failed(r.ctx, err)
		}
	}
}

// ReadAt implements io.ReaderAt. Each call is a request.
func (r *s3Reader) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 {
		return 0, os.ErrInvalid
	}
	part := &s3Reader{s3: r.s3, ctx: r.ctx, key: r.key, size: r.size, etag: r.etag, at: at}
	defer part.drop()
	n, err := io.ReadFull(part, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *s3Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, os.ErrInvalid
	}
	r.at = offset
	return offset, nil
}

// Stamp implements Stamped.
func (r *s3Reader) Stamp() (Stamp, error) { return Stamp{etag: r.etag}, nil }

// Size implements Reader.
func (r *s3Reader) Size() int64 { return r.size }

// Close implements io.Closer.
func (r *s3Reader) Close() error {
	r.drop()
	r.cancel(os.ErrClosed)
	return nil
}

// Fetcher is a Store whose blobs are not on this machine.
type Fetcher interface {
	// Fetch reads a blob into a file, checks the info, and returns a reader of the file, which has a name. Close
	// removes the file. Errors: NotFound; as of Info.Check, for a damaged blob.
	Fetch(ctx context.Context, key string, want Info) (Reader, error)
}

var _ Fetcher = (*S3)(nil)

// Fetch implements Fetcher.
func (s *S3) Fetch(ctx context.Context, key string, want Info) (Reader, error) {
	in, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	w, err := s.o.Temp.temporary(ctx)
	if err != nil {
		return nil, err
	}
	err = want.Check(io.TeeReader(ctxio.Reader(ctx, in), w))
	if ended := w.endWrites(); err == nil {
		err = ended
	}
	if err == nil {
		_, err = w.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		w.Discard()
		return nil, err
	}
	return &fetched{fileReader{w.file, w.size}}, nil
}

// fetched reads a file of Fetch.
type fetched struct{ fileReader }

// Close closes and removes the file.
func (f *fetched) Close() error {
	return errors.Join(f.File.Close(), ignoreMissing(os.Remove(f.Name())))
}
