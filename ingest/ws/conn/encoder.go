package conn

import (
	"errors"
	"math"
	"slices"
	"strings"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/internal/processors"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// Outputs says how the tensors of results are sent.
type Outputs uint8

// The forms of outputs.
const (
	AsJSON   Outputs = iota // text, with the tensors as JSON
	AsBinary                // a binary message of kind result
	AsNone                  // text without tensors
)

// ParseOutputs reads the option outputs; "" is JSON.
func ParseOutputs(name string) (Outputs, error) {
	switch name {
	case "", "json":
		return AsJSON, nil
	case "binary":
		return AsBinary, nil
	case "none":
		return AsNone, nil
	}
	return 0, stream.Errorf(stream.InvalidArgument, "outputs", "%q is not known: want json, binary or none", Clip(name))
}

// Encoder encodes one message at a time in reusable memory; memory for a long message is leased until written. One
// goroutine at a time may use an Encoder.
type Encoder struct {
	Text   []byte // the last text; a caller with a text of its own begins with Text[:0] and stores the text here
	whole  []byte // a binary message assembled from parts outside one lease
	reply  oip.InferResponse
	memory *buf.Pool
	turns  *processors.Turns
	leased *buf.Buf // nil: no long message is encoded
}

const (
	// maxOwn is the longest message, in bytes, encoded in unleased memory.
	maxOwn = 16 << 10
	// maxAppended bounds the bytes that a protocol appends to a text after Members.
	maxAppended = 1 << 10
)

// use sets the pool for leases of long messages (nil = no leases), and the turns of long messages.
func (e *Encoder) use(memory *buf.Pool, turns *processors.Turns) { e.memory, e.turns = memory, turns }

// grow returns dst, moved to leased memory when n more bytes exceed maxOwn.
func (e *Encoder) grow(dst []byte, n int) ([]byte, error) {
	if n <= maxOwn || e.memory == nil {
		return dst, nil
	}
	b, err := e.memory.Lease(len(dst) + n)
	if err != nil {
		return dst, err
	}
	dst = append(b.Bytes()[:0], dst...)
	e.leased.Release()
	e.leased = b
	return dst, nil
}

// written releases the memory of a long message, written or abandoned.
func (e *Encoder) written() {
	if e.leased != nil {
		e.leased.Release()
		e.leased, e.Text = nil, nil
	}
}

// Members appends the parameters and outputs of a result to dst, as members of the object begun in dst. Members fails
// with buf.ErrBudget when memory for a long text is lacking.
func (e *Encoder) Members(dst []byte, r *stream.Result) ([]byte, error) {
	e.fill(r)
	e.params(r)
	defer e.reply.Reset()
	if e.turns.Begin(oip.TextSize(&e.reply, oip.NeverBinary)) {
		defer e.turns.End()
	}
	dst, err := e.grow(dst, oip.TextBound(&e.reply, oip.NeverBinary)+maxAppended)
	if err != nil {
		return dst, err
	}
	return oip.AppendMembers(dst, &e.reply, oip.NeverBinary)
}

// Begin sets the result for Reply or Binary, including the result's model and times. Int adds parameters after Begin.
func (e *Encoder) Begin(r *stream.Result) {
	e.fill(r)
	e.reply.ModelName, e.reply.ModelVersion = r.Model.Name, r.Model.Version
	EachStep(&r.Timing, e.Int)
	e.Int("batch", int64(r.BatchSize))
	if r.Partial {
		e.param("partial", true)
	}
	e.params(r)
}

// Int adds a parameter to the result set by Begin.
func (e *Encoder) Int(key string, n int64) {
	e.reply.Params = append(e.reply.Params, oip.Param{Key: key, Kind: oip.Int, Int: n})
}

// Trace adds the trace of the result set by Begin.
func (e *Encoder) Trace(r *stream.Result) {
	e.param("traceresponse", string(frames.AppendTraceresponse(make([]byte, 0, 55), r)))
}

// Reply encodes the result set by Begin as the text of an Open Inference Protocol
// reply.
func (e *Encoder) Reply(id string) error {
	e.reply.ID = id
	defer e.reply.Reset()
	if e.turns.Begin(oip.TextSize(&e.reply, oip.NeverBinary)) {
		defer e.turns.End()
	}
	text, err := e.grow(e.Text[:0], oip.TextBound(&e.reply, oip.NeverBinary))
	if err == nil {
		e.Text, err = oip.AppendResponse(text, &e.reply, oip.NeverBinary)
	}
	return err
}

// Binary encodes the result set by Begin as header, length, JSON and tensors. The message is valid until r is
// released or the encoder is used again. When the tensors fill a lease without another holder, the other parts are
// put in front of the tensors in the same lease, and nothing is copied.
func (e *Encoder) Binary(r *stream.Result, sid uint32) ([]byte, error) {
	var err error
	e.Text, err = oip.AppendResponse(e.Text[:0], &e.reply, oip.AlwaysBinary)
	e.reply.Reset()
	if err != nil {
		return nil, err
	}
	front := wire.HeaderLen + wire.TensorsPrefixLen + len(e.Text)
	if r.Contiguous && r.Lease != nil {
		if head, ok := r.Lease.Prepend(front); ok {
			putHead(head, r, sid, e.Text)
			return r.Lease.Bytes(), nil
		}
	}
	n := front
	for i := range r.Outputs {
		n += len(r.Outputs[i].Data)
	}
	whole, err := e.grow(e.whole[:0], n)
	if err != nil {
		return nil, err
	}
	whole = slices.Grow(whole, n)[:front]
	putHead(whole, r, sid, e.Text)
	for i := range r.Outputs {
		whole = append(whole, r.Outputs[i].Data...)
	}
	if e.leased == nil {
		e.whole = whole
	}
	return whole, nil
}

// putHead writes the part before the tensors.
func putHead(dst []byte, r *stream.Result, sid uint32, text []byte) {
	n := wire.PutHeader(dst, &wire.Header{
		Kind: wire.KindResult, Codec: wire.Tensors, SID: sid, Seq: r.Seq, CaptureUS: r.CaptureUS,
		Width: uint16(min(r.Width, math.MaxUint16)), Height: uint16(min(r.Height, math.MaxUint16)),
	})
	wire.PutTensorsPrefix(dst[n:], text)
}

// fill copies r's outputs to e.reply.
func (e *Encoder) fill(r *stream.Result) {
	e.reply.Outputs = slices.Grow(e.reply.Outputs[:0], len(r.Outputs))
	for i := range r.Outputs {
		e.reply.Outputs = append(e.reply.Outputs, frames.Message(&r.Outputs[i]))
	}
	e.reply.ModelName, e.reply.ModelVersion = "", ""
	e.reply.Params = e.reply.Params[:0]
}

// params copies r's parameters to e.reply, sorted by name.
func (e *Encoder) params(r *stream.Result) {
	e.reply.Params = frames.AppendParams(e.reply.Params, r.Params)
}

func (e *Encoder) param(key string, value any) {
	if p, ok := oip.ParamOf(key, value); ok {
		e.reply.Params = append(e.reply.Params, p)
	}
}

// reusable reports whether the encoder's memory is worth keeping for the next
// connection.
func (e *Encoder) reusable() bool { return cap(e.Text) <= 4*maxOwn }

// Unsendable returns the error for a result without a representation in the requested form. The client has a remedy
// only for values outside JSON (outputs=binary) and for texts of excessive length.
func Unsendable(err error) error {
	var oe *stream.Error
	if errors.As(err, &oe) && !errors.Is(err, buf.ErrBudget) {
		return stream.Errorf(stream.Unsupported, oe.Field, "%s (outputs=binary can send every value)", oe.Msg)
	}
	return err
}

// Clip shortens text of a client for error messages.
func Clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
