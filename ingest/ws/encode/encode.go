// Package encode turns results into what the WebSocket protocols send: members of a JSON object, a whole Open Inference
// Protocol reply, or a binary message. It owns the memory that replies are built in. It must not know connections,
// sessions or the messages of one protocol.
package encode

import (
	"errors"
	"math"
	"slices"
	"strings"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Outputs says how the tensors of results are sent.
type Outputs uint8

// The forms of outputs.
const (
	JSON   Outputs = iota // text, with the tensors as JSON
	Binary                // a binary message of kind result
	None                  // text without tensors
)

// ParseOutputs reads the option outputs; "" is JSON.
func ParseOutputs(name string) (Outputs, error) {
	switch name {
	case "", "json":
		return JSON, nil
	case "binary":
		return Binary, nil
	case "none":
		return None, nil
	}
	return 0, stream.Errorf(stream.InvalidArgument, "outputs", "%q is not known: want json, binary or none", Clip(name))
}

// Encoder builds one message at a time in memory that it uses again. It is for one goroutine.
type Encoder struct {
	Text  []byte // the text last built; callers that build a text of their own begin it with Text[:0] and leave it here
	whole []byte // a binary message whose parts are not in one place
	reply oip.InferResponse
}

// Members appends the parameters and outputs of a result to dst, as members of the object that dst begins.
func (e *Encoder) Members(dst []byte, r *stream.Result) ([]byte, error) {
	e.fill(r)
	e.params(r)
	dst, err := oip.AppendMembers(dst, &e.reply, oip.Never)
	e.reply.Reset()
	return dst, err
}

// Begin takes over a result for Reply or Binary, which then name its model and its times. Int adds parameters before that.
func (e *Encoder) Begin(r *stream.Result) {
	e.fill(r)
	e.reply.ModelName, e.reply.ModelVersion = r.Model.Name, r.Model.Version
	Spans(&r.Timing, e.Int)
	e.Int("batch", int64(r.BatchSize))
	e.params(r)
}

// Int adds a parameter to the result that was begun.
func (e *Encoder) Int(key string, n int64) {
	e.reply.Params = append(e.reply.Params, oip.Param{Key: key, Kind: oip.Int, Int: n})
}

// Reply builds the text of an Open Inference Protocol reply of the result that was begun.
func (e *Encoder) Reply(id string) (err error) {
	e.reply.ID = id
	e.Text, err = oip.AppendResponse(e.Text[:0], &e.reply, oip.Never)
	e.reply.Reset()
	return err
}

// Binary returns the result that was begun as header, length, JSON and tensors. It is valid until r is released or the
// encoder is used again. Where the tensors fill their lease and nobody else holds it, the rest is put in front of them and
// nothing is copied.
func (e *Encoder) Binary(r *stream.Result, sid uint32) ([]byte, error) {
	if r.Partial {
		e.param("partial", true)
	}
	var err error
	e.Text, err = oip.AppendResponse(e.Text[:0], &e.reply, oip.Always)
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
	e.whole = slices.Grow(e.whole[:0], front)[:front]
	putHead(e.whole, r, sid, e.Text)
	for i := range r.Outputs {
		e.whole = append(e.whole, r.Outputs[i].Data...)
	}
	return e.whole, nil
}

// putHead writes what stands in front of the tensors.
func putHead(dst []byte, r *stream.Result, sid uint32, text []byte) {
	n := wire.PutHeader(dst, &wire.Header{
		Kind: wire.KindResult, Codec: wire.Tensors, SID: sid, Seq: r.Seq, CaptureUS: r.CaptureUS,
		Width: uint16(min(r.Width, math.MaxUint16)), Height: uint16(min(r.Height, math.MaxUint16)),
	})
	wire.PutTensorsPrefix(dst[n:], text)
}

// fill takes r's outputs over into e.reply.
func (e *Encoder) fill(r *stream.Result) {
	e.reply.Outputs = slices.Grow(e.reply.Outputs[:0], len(r.Outputs))
	for i := range r.Outputs {
		e.reply.Outputs = append(e.reply.Outputs, frames.Message(&r.Outputs[i]))
	}
	e.reply.ModelName, e.reply.ModelVersion = "", ""
	e.reply.Params = e.reply.Params[:0]
}

// params takes r's parameters over into e.reply, in the order of their names.
func (e *Encoder) params(r *stream.Result) {
	e.reply.Params = frames.AppendParams(e.reply.Params, r.Params)
}

func (e *Encoder) param(key string, value any) {
	if p, ok := oip.ParamOf(key, value); ok {
		e.reply.Params = append(e.reply.Params, p)
	}
}

// Reusable says whether the encoder's memory is worth keeping for the next connection.
func (e *Encoder) Reusable() bool { return cap(e.Text) <= 1<<20 && cap(e.whole) <= 4<<20 }

// Unsendable says why a result cannot be sent as asked. Values that JSON does not have are the one case that the client
// can do something about.
func Unsendable(err error) error {
	var oe *stream.Error
	if errors.As(err, &oe) {
		return stream.Errorf(stream.Unsupported, oe.Field, "%s (outputs=binary can send every value)", oe.Msg)
	}
	return err
}

// Clip shortens what a client sent to what an error message may repeat of it.
func Clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
