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

// The time limit for the arrival of a body, a WebSocket message or a gRPC message is ArrivalGrace plus a second per
// ArrivalRate bytes that have arrived or are read next.
const (
	ArrivalGrace = 15 * time.Second
	ArrivalRate  = 32 << 10
)

// ArrivalTime returns the time limit for the arrival of n bytes.
func ArrivalTime(n int) time.Duration {
	return ArrivalGrace + time.Duration(n/ArrivalRate)*time.Second
}

const (
	// firstChunk is the first lease for a body of unknown length; each further lease is larger than the last by the
	// factor growth.
	firstChunk = 16 << 10
	growth     = 4
)

// ReceiveBuffer returns memory for a body of n bytes. The first at bytes are in the memory of the previous call, no
// longer used afterwards; the new memory holds these bytes, and is longer than at. The method Receive of buf.Pool is a
// ReceiveBuffer.
type ReceiveBuffer func(n, at int) ([]byte, error)

// ErrIncomplete is wrapped by the error of a body that did not arrive completely: the body ended too soon or came too
// slowly, or the connection failed.
var ErrIncomplete = errors.New("the body did not arrive completely")

// ReadBody reads the request's body into memory from room and returns the body, without its content coding (gzip,
// deflate or zstd; status 415 for other codings). For a request without a body, ReadBody returns nil and does not
// call room. The body may have at most max bytes; max <= 0, or above the server's MaxBody, means MaxBody.
//
// room is called with at = 0, and again whenever its memory is full, with n, the body's length. For a body of unknown
// length, or with a coding, n is a few times at, up to max. A zstd body is read before decoding, and memory has room
// for the body and the decoded text. The caller owns the memory, also after an error. An error of room is returned
// unchanged. All other errors are coded: too_large (limits.max_body), invalid_argument for a short or malformed body,
// timeout (status 408) for a body that takes too long; and the errors of Client.Err.
func (s *Server) ReadBody(c *fiber.Ctx, max int, room ReceiveBuffer) ([]byte, error) {
	if max <= 0 || max > s.cfg.MaxBody {
		max = s.cfg.MaxBody
	}
	n := c.Request().Header.ContentLength()
	body, err := readBody(c, max, room)
	if err == nil && (n < 0 || n > prefetch) { // the body may have come long after the head of the request
		err = stillValid(c)
	}
	return body, err
}

// readBody is Server.ReadBody with no bound but max, and without Client.Err.
func readBody(c *fiber.Ctx, max int, room ReceiveBuffer) ([]byte, error) {
	body := bodyOf(c.Context())
	if body == nil {
		return nil, nil
	}
	if coding := c.Request().Header.ContentEncoding(); len(coding) > 0 && string(coding) != "identity" {
		return readDecoded(c, body, string(coding), max, room)
	}
	return readAsSent(c, body, max, room)
}

// readAsSent is ReadBody for a body without a content coding.
func readAsSent(c *fiber.Ctx, body io.Reader, max int, room ReceiveBuffer) ([]byte, error) {
	n := c.Request().Header.ContentLength()
	if n > max {
		return nil, tooLarge(&c.Request().Header, n, max)
	}
	if n < 0 {
		return readChunked(c, body, max, room, &pace{c: c})
	}
	if n == 0 {
		return nil, c.Request().CloseBodyStream()
	}
	p := pace{c: c}
	var mem []byte
	for at := 0; at < n; {
		var err error
		if mem, err = room(n, at); err != nil {
			return nil, err
		}
		mem = mem[:min(n, len(mem))]
		if n > prefetch {
			p.allow(len(mem))
		}
		m, err := io.ReadFull(body, mem[at:])
		if at += m; err != nil {
			return nil, readError(err, n)
		}
	}
	return mem[:n:n], c.Request().CloseBodyStream()
}

// readChunked is ReadBody for a body of unknown length. p is nil if the source of a decoded body limits the time.
func readChunked(c *fiber.Ctx, body io.Reader, max int, room ReceiveBuffer, p *pace) ([]byte, error) {
	size, n := 0, 0
	var mem []byte
	for {
		if n == len(mem) && n < max {
			if n == size {
				size = min(growth*n, max)
				if n == 0 {
					size = min(firstChunk, max)
				}
			}
			var err error
			if mem, err = room(size, n); err != nil {
				return nil, err
			}
			mem = mem[:min(size, len(mem))]
			if p != nil {
				p.allow(len(mem))
			}
		}
		if n == max {
			// Reading one more byte distinguishes a body of exactly the limit from a larger body.
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
		m, err := body.Read(mem[n:])
		n += m
		if err == io.EOF {
			return mem[:n:n], c.Request().CloseBodyStream()
		}
		if err != nil {
			return nil, readError(err, -1)
		}
	}
}

// ReadSmall is ReadBody into new memory, for bodies of at most a few kilobytes.
func (s *Server) ReadSmall(c *fiber.Ctx, most int) ([]byte, error) {
	var mem []byte
	return s.ReadBody(c, most, func(n, at int) ([]byte, error) {
		grown := make([]byte, min(n, max(firstChunk, growth*at)))
		copy(grown, mem[:at])
		mem = grown
		return mem, nil
	})
}

// pace limits the time of a body.
type pace struct {
	c     *fiber.Ctx
	began time.Time
}

// allow gives the client the time for n bytes of the body, counted from the first call.
func (p *pace) allow(n int) {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	_ = p.c.Context().Conn().SetReadDeadline(p.began.Add(ArrivalTime(n)))
}

// pacedPiece is the most bytes of a body with a content coding read before the deadline is extended.
const pacedPiece = 64 << 10

// paced is a body with a content coding. Its deadline depends on the bytes that arrive, not on the decoded bytes.
type paced struct {
	pace
	body     io.Reader
	at, next int // bytes read; where the time is extended
}

func (p *paced) Read(b []byte) (int, error) {
	if p.at >= p.next {
		p.next = p.at + pacedPiece
		p.allow(p.next)
	}
	n, err := p.body.Read(b)
	p.at += n
	return n, err
}

func tooLarge(h *fasthttp.RequestHeader, n, max int) error {
	what := ""
	if bytes.HasPrefix(h.ContentType(), []byte("application/json")) {
		what = "JSON "
	}
	if n < 0 {
		return coded.Errorf(coded.TooLarge, "",
			"request %ssize exceeds the maximum allowed input size of %d bytes (limits.max_body)", what, max)
	}
	return coded.Errorf(coded.TooLarge, "", "request %ssize of %d bytes exceeds the maximum allowed input size of "+
		"%d bytes (limits.max_body)", what, n, max)
}

// readError returns the coded error of a failure to read a body. n is its Content-Length, -1 for a body in chunks.
func readError(err error, n int) error {
	var ne net.Error
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	fault := &coded.Error{Code: coded.InvalidArgument, Err: err}
	var (
		coding *errBadCoding
		framed badChunks
	)
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return WithStatus(fasthttp.StatusRequestTimeout,
			&coded.Error{Code: coded.Timeout, Msg: "the body did not arrive in time",
				Err: fmt.Errorf("%w: %w", ErrIncomplete, err)})
	case errors.As(err, &framed): // also below a content coding
		fault.Msg = framed.Error()
	case errors.As(err, &coding):
		fault.Field, fault.Msg = "Content-Encoding", "is "+coding.coding+", and the body is not: "+coding.Error()
	case short && n >= 0:
		fault.Msg, fault.Err = fmt.Sprintf("the body ended before the %d bytes that Content-Length announced", n),
			ErrIncomplete
	case short:
		fault.Msg, fault.Err = "the body ended before its last chunk", ErrIncomplete
	default: // other texts may quote bytes of the connection, even of the next request
		fault.Msg, fault.Err = "the body cannot be read: the connection has failed",
			fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return fault
}

// StrictJSON reads a text consisting of a single JSON value into to, with numbers as written. Objects may only have
// keys that to has.
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
