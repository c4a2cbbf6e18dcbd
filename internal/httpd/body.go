package httpd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

const (
	// bodyGrace and minRate say how long a body may take: the grace, and a second
	// for each minRate bytes.
	bodyGrace = 15 * time.Second
	minRate   = 32 << 10
	// firstChunk is the first lease for a body of unknown length.
	firstChunk = 64 << 10
)

// ErrShort is wrapped by the error for a body that ended before the length that
// was announced.
var ErrShort = errors.New("the body is shorter than announced")

// ReadBody reads the request's body into memory from lease and returns it; a
// request without a body gives nil and no lease. max bounds it: 0 or less means
// the server's MaxBody, and so does anything larger.
//
// lease(n) must give at least n bytes, in any state. It is called once with the
// body's length. For a body of unknown length it is called again with growing n,
// up to max, and what the earlier calls gave is free again once the later one
// has returned and, for the last, ReadBody has. An error of lease is returned as
// it is; every other is coded: too_large (limits.max_body), invalid_argument for a
// short or malformed body, timeout (status 408) for one that takes too long. What lease gave stays the caller's to
// take back, also after an error.
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
	n := c.Request().Header.ContentLength()
	if n > max {
		return nil, tooLarge(n, max)
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
			// One more byte tells a body of just the limit from one above it.
			var one [1]byte
			if m, err := body.Read(one[:]); m > 0 {
				return nil, tooLarge(-1, max)
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

// extendDeadline gives the client the time that n bytes may take.
func extendDeadline(c *fiber.Ctx, n int) {
	_ = c.Context().Conn().SetReadDeadline(time.Now().Add(bodyTime(n)))
}

// bodyTime is the time that n bytes may take.
func bodyTime(n int) time.Duration { return bodyGrace + time.Duration(n/minRate)*time.Second }

func tooLarge(n, max int) error {
	if n < 0 {
		return coded.Errorf(coded.TooLarge, "", "the body is larger than %d bytes (limits.max_body)", max)
	}
	return coded.Errorf(coded.TooLarge, "", "the body has %d bytes, the limit is %d (limits.max_body)", n, max)
}

// readError codes why a body could not be read. n is what Content-Length
// announced, -1 for a body in chunks.
func readError(err error, n int) error {
	var ne net.Error
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	fault := &coded.Error{Code: coded.InvalidArgument, Err: err}
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return WithStatus(fasthttp.StatusRequestTimeout, &coded.Error{Code: coded.Timeout, Msg: "the body did not arrive in time", Err: err})
	case short && n >= 0:
		fault.Msg, fault.Err = fmt.Sprintf("the body ended before the %d bytes that Content-Length announced", n), ErrShort
	case short:
		fault.Msg, fault.Err = "the body ended before its last chunk", ErrShort
	default:
		fault.Msg = "the body cannot be read: " + err.Error()
	}
	return fault
}
