package httpd

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
)

// Send sends r as the body of the reply, and closes r. Each piece has a time limit of its own. A negative size is
// unknown. onEnd has its argument called when the reply must end, until stop is called.
func Send(c *fiber.Ctx, onEnd func(func(error)) (stop func()), r io.ReadCloser, size int) error {
	ForbidScripts(c)
	d := &download{ReadCloser: r, conn: c.Context().Conn(), size: size}
	d.stop = onEnd(func(err error) { d.ended.Store(&err) })
	return c.SendStream(d, size)
}

// ForbidScripts keeps a browser from running a body that a client or a consumer has written: a page in the body would
// have the server's origin.
func ForbidScripts(c *fiber.Ctx) {
	h := &c.Response().Header
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	h.Set(fiber.HeaderContentSecurityPolicy, "sandbox")
}

// downloadWait is the longest time in which a client must take a piece of a result.
const downloadWait = 30 * time.Second

// download is a file, or a part of the file, while the file is sent.
type download struct {
	io.ReadCloser
	conn net.Conn
	size int // negative = unknown

	ended atomic.Pointer[error] // the reason of the end of the client's credentials
	stop  func()
}

// Read implements io.Reader. Each piece has a time limit of its own.
func (d *download) Read(b []byte) (int, error) {
	if err := d.ended.Load(); err != nil {
		return 0, *err
	}
	_ = d.conn.SetWriteDeadline(time.Now().Add(downloadWait))
	return d.ReadCloser.Read(b)
}

// downloadPiece is how much of a file is read and written at once: a client has downloadWait for a piece.
const downloadPiece = 64 << 10

// WriteTo implements io.WriterTo: the caller's own pieces have a few KiB.
func (d *download) WriteTo(w io.Writer) (n int64, err error) {
	b := make([]byte, min(downloadPiece, max(1, uint(d.size))))
	for {
		m, err := io.ReadFull(d, b)
		if m > 0 {
			m, failed := w.Write(b[:m])
			if n += int64(m); failed != nil {
				return n, failed
			}
		}
		switch {
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.stop()
	return d.ReadCloser.Close()
}
