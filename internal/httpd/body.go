package httpd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

const (
	// A body may take bodyGrace, and a second for each minRate bytes.
	bodyGrace = 15 * time.Second
	minRate   = 32 << 10
	// firstChunk is the first lease for a body of unknown length.
	firstChunk = 64 << 10
)

// ErrShort is wrapped by the error of a body that is shorter than its announced length.
var ErrShort = errors.New("the body is shorter than announced")

// ReadBody reads the request's body into memory from lease and returns it, without its
// content coding (gzip, deflate or zstd; status 415 for others). For a request
// without a body it returns nil and does not call lease. The body may have at most max
// bytes; 0 or less, or more than the server's MaxBody, means MaxBody.
//
// lease(n) must return at least n bytes, with any content. It is called once with the
// body's length. For a body of unknown length, or with a coding, it is called again with growing n, up to
// max; the memory of a call is no longer used when the next call has returned, and that of
// the last call when ReadBody has returned. The caller owns the memory, also after an
// error. An error of lease is returned unchanged. All other errors are coded: too_large
// (limits.max_body), invalid_argument for a short or malformed body, timeout (status 408)
// for a body that takes too long.
func (s *Server) ReadBody(c *fiber.Ctx, max int, lease func(n int) ([]byte, error)) ([]byte, error) {
	if max <= 0 || max > s.cfg.MaxBody {
		max = s.cfg.MaxBody
	}
	return ReadBody(c, max, lease)
}

// ReadBody is Server.ReadBody with no bound but max.
func ReadBody(c *fiber.Ctx, max int, lease func(n int) ([]byte, error)) ([]byte, error) {
	body := c.Context().RequestBodyStream()
	if body == nil {
		return nil, nil
	}
	if coding := c.Request().Header.ContentEncoding(); len(coding) > 0 && string(coding) != "identity" {
		return readDecoded(c, body, string(coding), max, lease)
	}
	n := c.Request().Header.ContentLength()
	if n > max {
		return nil, tooLarge(&c.Request().Header, n, max)
	}
	if n < 0 {
		return readChunked(c, body, max, lease)
	}
	if n == 0 {
		return nil, c.Request().CloseBodyStream()
	}
	mem, err := lease(n)
	if err != nil {
		return nil, err
	}
	mem = mem[:n:n]
	if n > prefetch {
		extendDeadline(c, n)
	}
	if _, err := io.ReadFull(body, mem); err != nil {
		return nil, readError(err, n)
	}
	return mem, c.Request().CloseBodyStream()
}

func readChunked(c *fiber.Ctx, body io.Reader, max int, lease func(n int) ([]byte, error)) ([]byte, error) {
	size := min(firstChunk, max)
	mem, err := lease(size)
	if err != nil {
		return nil, err
	}
	mem = mem[:size]
	extendDeadline(c, size)
	n := 0
	for {
		m, err := body.Read(mem[n:])
		n += m
		if err == io.EOF {
			return mem[:n:n], c.Request().CloseBodyStream()
		}
		if err != nil {
			return nil, readError(err, -1)
		}
		if n < len(mem) {
			continue
		}
		if n == max {
			// Reading one more byte distinguishes a body of exactly the limit from a larger one.
			var one [1]byte
			if m, err := body.Read(one[:]); m > 0 {
				return nil, tooLarge(&c.Request().Header, -1, max)
			} else if err == io.EOF {
				return mem[:n:n], c.Request().CloseBodyStream()
			} else if err != nil {
				return nil, readError(err, -1)
			}
			continue
		}
		size = min(2*size, max)
		larger, err := lease(size)
		if err != nil {
			return nil, err
		}
		copy(larger[:n], mem[:n])
		mem = larger[:size]
		extendDeadline(c, size)
	}
}

// extendDeadline allows the client the time of n bytes.
func extendDeadline(c *fiber.Ctx, n int) {
	_ = c.Context().Conn().SetReadDeadline(time.Now().Add(bodyTime(n)))
}

// bodyTime returns the time that n bytes may take.
func bodyTime(n int) time.Duration { return bodyGrace + time.Duration(n/minRate)*time.Second }

func tooLarge(h *fasthttp.RequestHeader, n, max int) error {
	what := ""
	if bytes.HasPrefix(h.ContentType(), []byte("application/json")) {
		what = "JSON "
	}
	if n < 0 {
		return coded.Errorf(coded.TooLarge, "", "request %ssize exceeds the maximum allowed input size of %d bytes (limits.max_body)", what, max)
	}
	return coded.Errorf(coded.TooLarge, "", "request %ssize of %d bytes exceeds the maximum allowed input size of %d bytes (limits.max_body)", what, n, max)
}

// readError returns the coded error of a body that could not be read. n is its
// Content-Length, -1 for a body in chunks.
func readError(err error, n int) error {
	var ne net.Error
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	fault := &coded.Error{Code: coded.InvalidArgument, Err: err}
	var coding *errBadCoding
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return WithStatus(fasthttp.StatusRequestTimeout, &coded.Error{Code: coded.Timeout, Msg: "the body did not arrive in time", Err: err})
	case errors.As(err, &coding):
		fault.Field, fault.Msg = "Content-Encoding", "is "+coding.coding+", and the body is not: "+coding.Error()
	case short && n >= 0:
		fault.Msg, fault.Err = fmt.Sprintf("the body ended before the %d bytes that Content-Length announced", n), ErrShort
	case short:
		fault.Msg, fault.Err = "the body ended before its last chunk", ErrShort
	default:
		fault.Msg = "the body cannot be read: " + err.Error()
	}
	return fault
}

// StrictJSON reads a text that is one JSON value into to, with numbers as they are
// written. An object may have no keys that to does not have.
func StrictJSON(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more text after the object")
	}
	return nil
}
