package rest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/ingest/frames"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

var (
	_ io.ReadCloser = (*call)(nil)
	_ io.WriterTo   = (*call)(nil)
)

// write makes the reply from the result: the JSON, the parts after the JSON, and the headers. The reply sends the
// outputs' data from the worker's memory.
func (k *call) write(c *fiber.Ctx) error {
	r := k.Result
	if k.opt.Outputs == request.AsNone {
		k.ReplyNone()
	} else if err := k.Reply(); err != nil {
		return err
	}
	k.Response.NotFinite = true // NaN and infinities as in all protocols here and in other servers
	h := &c.Response().Header
	if k.opt.Data != "" {
		if err := k.data(h); err != nil {
			return err
		}
		k.timing = frames.AppendTiming(k.timing[:0], &r.Timing)
		h.SetBytesV("Server-Timing", k.timing)
		k.traceresponse(c)
		return nil
	}
	if err := k.encode(); err != nil {
		return howToAsk(unsendable(err), r.Model)
	}
	k.parts = oip.BinaryParts(k.parts[:0], k.Response.Outputs, k.isBinary)
	if len(k.parts) == 0 {
		h.SetContentType(fiber.MIMEApplicationJSON)
	} else {
		h.SetContentType(fiber.MIMEOctetStream)
		k.timing = strconv.AppendInt(k.timing[:0], int64(k.size), 10)
		h.SetBytesV(headerLength, k.timing)
		for _, p := range k.parts {
			k.size += len(p)
		}
	}
	k.timing = frames.AppendTiming(k.timing[:0], &r.Timing)
	h.SetBytesV("Server-Timing", k.timing)
	k.traceresponse(c)
	return nil
}

// howToAsk adds advice to the error about a result that JSON cannot represent: how a REST client gets the result.
func howToAsk(err error, m *stream.Model) error {
	var e *stream.Error
	if !errors.Is(err, oip.ErrNotJSON) || !errors.As(err, &e) {
		return err
	}
	route := ""
	if m.App != nil {
		route = "; or call a route of its own, such as /apps/" + m.Name + "/infer"
	}
	return stream.Errorf(e.Code, e.Field, `%s; ask for it as binary data: outputs=binary in the query, or `+
		`"parameters":{"binary_data_output":true} in the JSON of the request; or data=OUTPUT in the query, for the `+
		`bytes of that output alone, such as a picture file%s`, e.Msg, route)
}

// data makes the reply from the data of one output: the only element of BYTES, or the bytes of numbers.
func (k *call) data(h *fasthttp.ResponseHeader) error {
	i := slices.IndexFunc(k.Response.Outputs, func(t oip.Tensor) bool { return t.Name == k.opt.Data })
	if i < 0 {
		names := make([]string, len(k.Response.Outputs))
		for i := range names {
			names[i] = k.Response.Outputs[i].Name
		}
		return stream.Errorf(stream.InvalidArgument, "data", "%.64q is not an output of the result, which has %s",
			k.opt.Data, cmp.Or(strings.Join(names, ", "), "none"))
	}
	t := &k.Response.Outputs[i]
	data := t.Data
	switch {
	case t.Shared:
		return stream.Errorf(stream.InvalidArgument, "data",
			"output %.64q is written to shared memory: leave the option out", t.Name)
	case t.Datatype == oip.Bytes:
		if len(data) < 4 || int(binary.LittleEndian.Uint32(data)) != len(data)-4 {
			return stream.Errorf(stream.InvalidArgument, "data", "output %.64q has the shape %v: only the data of "+
				"one element of BYTES can be the whole reply. Leave the option out, or ask for outputs=binary", t.Name,
				t.Shape)
		}
		data = data[4:]
	}
	k.head, k.parts, k.size = k.head[:0], k.parts[:0], len(data)
	if len(data) > 0 {
		k.parts = append(k.parts, data)
	}
	kind := http.DetectContentType(data)
	if !strings.HasPrefix(kind, "image/") { // a page would run with the server's origin
		kind = fiber.MIMEOctetStream
	}
	h.SetContentType(kind)
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return nil
}

// encode makes the JSON of the reply in k.head. If the JSON may be long, encode only begins with the pieces of the
// JSON; k.size is then the length. The memory budget includes the JSON kept until the client has read the reply.
func (k *call) encode() (err error) {
	k.pieces.Reset()
	k.piece = nil
	if done, err := k.begin(); done || err != nil {
		return err
	}
	if k.piece = k.alloc(oip.PieceSize); k.piece == nil {
		return buf.ErrBudget
	}
	k.size = k.pieces.Size(k.piece)
	return nil
}

// begin makes the whole JSON of a short reply, or begins with the pieces of a long reply.
func (k *call) begin() (done bool, err error) {
	if k.turns.Begin(oip.TextSize(&k.Response, k.isBinary)) {
		defer k.turns.End()
	}
	if oip.TextBound(&k.Response, k.isBinary) <= oip.PieceSize {
		k.head, err = oip.AppendResponse(k.head[:0], &k.Response, k.isBinary)
		if k.size = len(k.head); err == nil && !k.affords(k.size) {
			err = buf.ErrBudget
		}
		return true, err
	}
	k.head, err = k.pieces.Begin(k.turns, k.head, &k.Response, k.isBinary)
	return false, err
}

// maxUncharged is the largest reply kept without a charge to the memory budget.
const maxUncharged = 4 << 10

// affords charges n bytes of the reply to the memory budget, and reports success.
func (k *call) affords(n int) bool { return n <= maxUncharged || k.Charge(int64(n)) == nil }

// unsendable returns the error for a result that cannot be written: because JSON cannot represent the result, because
// the model's outputs do not fit together, or because memory is short.
func unsendable(err error) error {
	if errors.Is(err, buf.ErrBudget) {
		return err
	}
	code := stream.Internal
	if errors.Is(err, oip.ErrNotJSON) {
		code = stream.Unsupported
	}
	return stream.Errorf(code, "", "the result cannot be sent: %w", err)
}

// traceresponse sets the header with the trace of an accepted request.
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
	return k.Request.WantsBinary(k.Response.Outputs[i].Name)
}

// maxGathered is the maximum size of a reply whose parts are copied together. Copying a small reply costs less than
// sending single parts through fasthttp's body stream.
const maxGathered = 128 << 10

// minPacked is the minimum size of a reply to compress for clients that accept compression. Smaller replies fit into
// a few packets.
const minPacked = 4 << 10

// pack compresses the reply if the client accepts compression.
func (k *call) pack(c *fiber.Ctx) bool {
	if len(c.Request().Header.Peek(fiber.HeaderAcceptEncoding)) == 0 {
		return false
	}
	packed, ok := httpd.Pack(c, k.turns, k.size, k.alloc, k)
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

// send makes the call the body of the reply. The reply then owns the call's memory: fasthttp calls Close after
// writing the reply or failing to write.
func (k *call) send(c *fiber.Ctx) {
	body := k.head
	if k.size >= minPacked && k.pack(c) {
		return
	}
	switch {
	case k.piece != nil:
		c.Response().SetBodyStream(k, k.size)
		return
	case len(k.parts) == 0:
	case k.size <= maxGathered && k.affords(k.size-len(k.head)):
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
	// At the end of a request, fasthttp closes the request's values that are io.Closers.
	c.Context().SetUserValue(keepKey{}, k)
}

// WriteTo writes the parts of the reply without copying the parts together.
func (k *call) WriteTo(w io.Writer) (sum int64, err error) {
	n := 0
	if k.piece == nil {
		n, err = w.Write(k.head)
		sum = int64(n)
	} else {
		k.pieces.Rewind()
	}
	for k.piece != nil && err == nil {
		piece := k.pieces.Append(k.piece[:0])
		if len(piece) == 0 {
			break
		}
		n, err = w.Write(piece)
		sum += int64(n)
	}
	for _, p := range k.parts {
		if err != nil {
			break
		}
		n, err = w.Write(p)
		sum += int64(n)
	}
	return sum, err
}

// Read is not called, since the HTTP server calls WriteTo.
func (k *call) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close releases the result's memory when the reply has been written or cannot be.
func (k *call) Close() error {
	k.free()
	return nil
}
