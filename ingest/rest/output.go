package rest

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/frames"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
)

var (
	_ io.ReadCloser = (*call)(nil)
	_ io.WriterTo   = (*call)(nil)
)

// write makes the reply from the result: its JSON, the parts after it, and the headers.
// The outputs' data are sent from the worker's memory.
func (k *call) write(c *fiber.Ctx) error {
	r := k.Result
	if k.opt.Outputs == request.AsNone {
		k.ReplyNone()
	} else if err := k.Reply(); err != nil {
		return err
	}
	// Whoever asks for JSON gets the words that other servers of the protocol send for
	// numbers that are not finite; others get binary data.
	k.Response.NotFinite = k.strict || k.opt.Outputs == request.AsJSON
	var err error
	k.head, err = oip.AppendResponse(k.head[:0], &k.Response, k.isBinary)
	if err != nil && !k.strict && k.opt.Outputs == request.AsRequested {
		// The client sent no message that could have asked for binary data, and JSON
		// cannot represent this result.
		k.raw = true
		k.head, err = oip.AppendResponse(k.head[:0], &k.Response, k.isBinary)
	}
	if err != nil {
		return unsendable(err)
	}
	k.parts = oip.BinaryParts(k.parts[:0], k.Response.Outputs, k.isBinary)
	k.size = len(k.head)
	h := &c.Response().Header
	if len(k.parts) == 0 {
		h.SetContentType(fiber.MIMEApplicationJSON)
	} else {
		h.SetContentType(fiber.MIMEOctetStream)
		k.timing = strconv.AppendInt(k.timing[:0], int64(len(k.head)), 10)
		h.SetBytesV(headerLength, k.timing)
		for _, p := range k.parts {
			k.size += len(p)
		}
	}
	k.timing = appendTiming(k.timing[:0], &r.Timing)
	h.SetBytesV("Server-Timing", k.timing)
	k.traceresponse(c)
	return nil
}

// unsendable is the error of a result that cannot be written: because the client wants JSON,
// or because the model's outputs do not fit together.
func unsendable(err error) error {
	code := stream.Internal
	if errors.Is(err, oip.ErrNotJSON) {
		code = stream.Unsupported
	}
	return stream.Errorf(code, "", "the result cannot be sent: %w", err)
}

// traceresponse says which trace the request belongs to, if it was accepted.
func (k *call) traceresponse(c *fiber.Ctx) {
	if k.Result != nil {
		k.timing = frames.AppendTraceresponse(k.timing[:0], k.Result)
		c.Response().Header.SetBytesV("Traceresponse", k.timing)
	}
}

// binary reports whether output i is sent after the JSON.
func (k *call) binary(i int) bool {
	switch k.opt.Outputs {
	case request.AsJSON:
		return false
	case request.AsBinary:
		return true
	}
	return k.raw || k.Request.WantsBinary(k.Response.Outputs[i].Name)
}

// appendTiming writes the durations of the steps, in milliseconds, in the form of the
// Server-Timing header: waiting, preparing the batch, running it. A step that was not
// reached is left out.
func appendTiming(dst []byte, t *stream.Timing) []byte {
	for _, stage := range [...]struct {
		name     string
		from, to stream.Instant
	}{
		{"queue", t.Received, t.Dequeued}, {"prepare", t.Dequeued, t.Started}, {"run", t.Started, t.Done},
	} {
		if stage.from == 0 || stage.to < stage.from {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, stage.name...), ";dur="...)
		dst = strconv.AppendFloat(dst, float64(stage.to.Sub(stage.from))/float64(time.Millisecond), 'f', 3, 64)
	}
	return dst
}

// maxGathered is the size of a reply up to which copying its parts together costs less
// than sending them one by one, which fasthttp does for replies with a stream.
const maxGathered = 128 << 10

// minPacked is the size of a reply from which it is compressed, for clients that ask for
// it: a smaller one fits into a few packets.
const minPacked = 4 << 10

// pack compresses the reply, if the client accepts that.
func (k *call) pack(c *fiber.Ctx) bool {
	if len(c.Request().Header.Peek(fiber.HeaderAcceptEncoding)) == 0 {
		return false
	}
	packed, ok := httpd.Pack(c, k.size, k.alloc, append([][]byte{k.head}, k.parts...)...)
	if !ok {
		return false
	}
	c.Response().Header.Set(fiber.HeaderContentEncoding, packed.Coding)
	c.Response().SetBodyRaw(packed.Body)
	c.Context().SetUserValue(keepKey{}, k)
	return true
}

// keepKey is the key under which the request keeps the call until the reply is written.
type keepKey struct{}

// send makes the call the body of the reply, which then owns its memory: fasthttp calls
// Close when the reply has been written or cannot be.
func (k *call) send(c *fiber.Ctx) {
	body := k.head
	if k.size >= minPacked && k.pack(c) {
		return
	}
	switch {
	case len(k.parts) == 0:
	case k.size <= maxGathered:
		for _, p := range k.parts {
			k.head = append(k.head, p...)
		}
		body = k.head
	case k.Result.Contiguous && len(k.parts) == 1 && k.Result.Lease != nil && k.Result.Lease.Len() == len(k.parts[0]):
		room, ok := k.Result.Lease.Prepend(len(k.head))
		if !ok {
			c.Response().SetBodyStream(k, k.size)
			return
		}
		copy(room, k.head)
		body = k.Result.Lease.Bytes()
	default:
		c.Response().SetBodyStream(k, k.size)
		return
	}
	c.Response().SetBodyRaw(body)
	// fasthttp closes values of a request that are io.Closers when the request ends.
	c.Context().SetUserValue(keepKey{}, k)
}

// WriteTo writes the reply without copying it together first.
func (k *call) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(k.head)
	sum := int64(n)
	for _, p := range k.parts {
		if err != nil {
			break
		}
		n, err = w.Write(p)
		sum += int64(n)
	}
	return sum, err
}

// Read is for writers that do not call WriteTo.
func (k *call) Read(b []byte) (int, error) {
	for k.at <= len(k.parts) {
		part := k.head
		if k.at > 0 {
			part = k.parts[k.at-1]
		}
		if n := copy(b, part[k.off:]); n > 0 || len(b) == 0 {
			k.off += n
			return n, nil
		}
		k.at, k.off = k.at+1, 0
	}
	return 0, io.EOF
}

// Close releases the result's memory when the reply has been written or cannot be.
func (k *call) Close() error {
	k.free()
	return nil
}
