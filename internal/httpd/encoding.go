package httpd

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/processors"
	"millrace/stream/coded"
)

// The content codings of bodies.
const (
	codingGzip    = "gzip"
	codingDeflate = "deflate" // the format of zlib
	codingZstd    = "zstd"
)

// zstdWindow is the most memory for decoding a zstd body, as recommended by RFC 8878, and zstdAtOnce the number of
// bodies decoded at the same time. Further bodies wait, no longer than for the decoding of others: see readZstd.
const (
	zstdWindow = 8 << 20
	zstdAtOnce = 16
)

var zstdSlots = make(chan struct{}, zstdAtOnce)

// errBadCoding is the error of a body that does not match its declared coding.
type errBadCoding struct {
	coding string
	err    error
}

func (e *errBadCoding) Error() string { return e.err.Error() }
func (e *errBadCoding) Unwrap() error { return e.err }

// decoded returns a reader of body without its content coding, and a function to call after use.
func decoded(body io.Reader, coding string) (r io.Reader, done func(), err error) {
	coding = strings.ToLower(strings.TrimSpace(coding))
	switch coding {
	case codingGzip, "x-gzip":
		z, ok := gzips.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		r, done, err = z, func() { gzips.Put(z) }, z.Reset(body)
	case codingDeflate:
		from := bufio.NewReader(body) // zlib reads only up to the end of the coding
		var z io.ReadCloser
		z, err = zlib.NewReader(from)
		r, done = &singleStream{z, from}, func() {}
	case codingZstd:
		zstdSlots <- struct{}{}
		var z *zstd.Decoder
		z, err = zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow))
		r, done = z, func() {
			if z != nil {
				z.Close()
			}
			<-zstdSlots
		}
	default:
		return nil, nil, WithStatus(fiber.StatusUnsupportedMediaType,
			coded.Errorf(coded.Unsupported, "Content-Encoding",
				"%.64q is not supported: send gzip, deflate or zstd, or the body as it is", coding))
	}
	if err != nil {
		done()
		return nil, nil, readError(&errBadCoding{coding, err}, -1)
	}
	return &decoding{r, coding}, done, nil
}

var gzips sync.Pool

// singleStream is a reader of a single stream. Bytes after the stream are an error: otherwise the rest of a body would
// be read as the next request.
type singleStream struct {
	io.Reader
	from io.ByteReader
}

func (w *singleStream) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err == io.EOF {
		if _, err = w.from.ReadByte(); err == nil {
			err = errors.New("more follows its end")
		}
	}
	return n, err
}

// decoding is a reader whose errors name the coding.
type decoding struct {
	io.Reader
	coding string
}

func (d *decoding) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = &errBadCoding{d.coding, err}
	}
	return n, err
}

// readDecoded is ReadBody for a body with a content coding. The bound holds for the decoded body and for the body as
// sent.
func readDecoded(c *fiber.Ctx, body io.Reader, coding string, max int, room ReceiveBuffer) ([]byte, error) {
	n := c.Request().Header.ContentLength()
	if n > max {
		return nil, tooLarge(&c.Request().Header, n, max)
	}
	if strings.EqualFold(strings.TrimSpace(coding), codingZstd) {
		return readZstd(c, body, max, room)
	}
	plain, done, err := decoded(&paced{pace: pace{c: c}, body: body}, coding)
	if err != nil {
		return nil, err
	}
	defer done()
	return readChunked(c, plain, max, room, nil)
}

// readZstd is readDecoded for zstd. Because a zstd decoder has much memory, decoding begins only after the whole body
// has arrived, so that no silent client keeps a decoder.
func readZstd(c *fiber.Ctx, body io.Reader, max int, room ReceiveBuffer) ([]byte, error) {
	mem, err := readAsSent(c, body, max, room)
	if err != nil {
		return nil, err
	}
	from := &bufferedReader{mem: mem, n: len(mem)}
	z, done, err := decoded(from, codingZstd)
	if err != nil {
		return nil, err
	}
	defer done()
	plain, err := readChunked(c, z, max, func(n, at int) ([]byte, error) { // after the body as sent
		if from.mem, err = room(from.n+n, from.n+at); err != nil {
			return nil, err
		}
		return from.mem[from.n:], nil
	}, nil)
	if err != nil {
		return nil, err
	}
	n := copy(from.mem, plain)
	return from.mem[:n:n], nil
}

// bufferedReader reads the first n bytes of mem; mem may be replaced by other memory with the same bytes.
type bufferedReader struct {
	mem   []byte
	n, at int
}

func (a *bufferedReader) Read(b []byte) (int, error) {
	if a.at == a.n {
		return 0, io.EOF
	}
	m := copy(b, a.mem[a.at:a.n])
	a.at += m
	return m, nil
}

// Packed is a body in a content coding.
type Packed struct {
	Coding string
	Body   []byte
}

// Pack compresses a reply, written by body, into memory of lease (nil: no memory), if the client accepts a coding. ok
// is false when the reply should be sent uncompressed: the client accepts no coding, there is no memory, or the
// result is not smaller than size. A long reply takes turns with other long computations.
func Pack(c *fiber.Ctx, t *processors.Turns, size int, lease func(n int) []byte, body io.WriterTo) (p Packed, ok bool) {
	accepted := c.Request().Header.Peek(fiber.HeaderAcceptEncoding)
	if len(accepted) == 0 {
		return p, false
	}
	if p.Coding = acceptedCoding(string(accepted)); p.Coding == "" {
		return p, false
	}
	room := lease(size)
	if room == nil {
		return p, false
	}
	to := &bounded{room: room[:0:size]}
	var z io.WriteCloser
	switch p.Coding {
	case codingGzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		w.Reset(to)
		z = w
	default:
		w := zlibWriters.Get().(*zlib.Writer)
		defer zlibWriters.Put(w)
		w.Reset(to)
		z = w
	}
	var w io.Writer = z
	if size >= processors.LongText {
		w = turnWriter{t, z}
	}
	if _, err := body.WriteTo(w); err != nil || z.Close() != nil {
		return p, false
	}
	p.Body = to.room
	return p, true
}

// turnWriter writes in pieces of at most processors.LongText bytes, each in a turn. The caller of Write must not hold
// a turn.
type turnWriter struct {
	turns *processors.Turns
	to    io.Writer
}

func (t turnWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		done := 0
		done, err = t.write(p[n:min(n+processors.LongText, len(p))])
		n += done
	}
	return n, err
}

func (t turnWriter) write(piece []byte) (int, error) {
	if t.turns.Begin(processors.LongText) {
		defer t.turns.End()
	}
	return t.to.Write(piece)
}

var (
	gzipWriters = sync.Pool{New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }}
	zlibWriters = sync.Pool{New: func() any { w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed); return w }}
)

// acceptedCoding returns the coding of a reply by the header Accept-Encoding, gzip or
// deflate, or "".
func acceptedCoding(header string) string {
	best := ""
	for _, one := range strings.Split(header, ",") {
		name, params, _ := strings.Cut(one, ";")
		params = strings.ReplaceAll(params, " ", "")
		if weight, ok := strings.CutPrefix(params, "q="); ok && strings.Trim(weight, "0.") == "" {
			continue // refused
		}
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case codingGzip, "x-gzip":
			return codingGzip
		case codingDeflate:
			best = codingDeflate
		}
	}
	return best
}

// bounded is memory of fixed size.
type bounded struct{ room []byte }

var errFull = errors.New("no smaller")

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > cap(b.room)-len(b.room) {
		return 0, errFull
	}
	b.room = append(b.room, p...)
	return len(p), nil
}
