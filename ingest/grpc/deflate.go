package grpc

import (
	"compress/zlib"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
)

// deflate is the message compression called deflate in gRPC, with the format of zlib. grpc-go has only gzip; the C++
// and Python clients have both.
type deflate struct{ writers, readers sync.Pool }

func init() { encoding.RegisterCompressor(new(deflate)) }

// Name implements encoding.Compressor.
func (*deflate) Name() string { return "deflate" }

// Compress implements encoding.Compressor.
func (d *deflate) Compress(to io.Writer) (io.WriteCloser, error) {
	w, ok := d.writers.Get().(*deflateWriter)
	if !ok {
		return &deflateWriter{zlib.NewWriter(to), d}, nil
	}
	w.Reset(to)
	return w, nil
}

type deflateWriter struct {
	*zlib.Writer
	of *deflate
}

// Close writes the remaining data and returns the writer to the pool.
func (w *deflateWriter) Close() error {
	defer w.of.writers.Put(w)
	return w.Writer.Close()
}

// Decompress implements encoding.Compressor. The caller limits the size of the output.
func (d *deflate) Decompress(from io.Reader) (io.Reader, error) {
	r, ok := d.readers.Get().(*deflateReader)
	if !ok {
		z, err := zlib.NewReader(from)
		if err != nil {
			return nil, err
		}
		return &deflateReader{z, d}, nil
	}
	if err := r.ReadCloser.(zlib.Resetter).Reset(from, nil); err != nil {
		d.readers.Put(r)
		return nil, err
	}
	return r, nil
}

type deflateReader struct {
	io.ReadCloser
	of *deflate
}

// Read gives the reader back at the end.
func (r *deflateReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		r.of.readers.Put(r)
	}
	return n, err
}
