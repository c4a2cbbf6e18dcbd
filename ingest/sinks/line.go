package sinks

import (
	"errors"
	"fmt"
	"strconv"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Encoder writes results as lines of JSON, in the form of WebSocket replies. Not safe for concurrent use.
type Encoder struct {
	outputs []byte
	reply   oip.InferResponse
}

// Line returns the JSON of r, a result of model, without a line feed. The first member of the object has the key and
// the name of the frame's origin, such as "stream". The line is in new memory, since several receivers share the line.
// failed is the error of encoding r; the line then contains this error.
func (e *Encoder) Line(key, name, model string, r *stream.Result) (line []byte, failed error) {
	dst := append(oip.AppendString(append(make([]byte, 0, 512), '{'), key), ':')
	dst = oip.AppendString(dst, name)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), r.Seq, 10)
	dst = strconv.AppendInt(append(dst, `,"pts_us":`...), r.CaptureUS, 10)
	if r.Timing.Received != 0 {
		dst = strconv.AppendInt(append(dst, `,"received_us":`...), r.Timing.Received.Wall().UnixMicro(), 10)
	}
	err := r.Err
	if r.Outcome == stream.Answered {
		var out []byte
		if out, err = e.members(r); err == nil {
			return append(append(dst, out...), '}'), nil
		}
		failed = err
		r.CountUnsendable(err)
	}
	dst = oip.AppendString(append(dst, `,"model":`...), model)
	return append(wire.AppendPlainError(append(dst, ','), err), '}'), failed
}

// noModel is the beginning of a reply without the name of a model.
const noModel = `{"model_name":""`

// outputNamed returns the name of the output in a field such as outputs[1].data[0].
func outputNamed(field string, r *stream.Result) string {
	var i int
	if n, _ := fmt.Sscanf(field, "outputs[%d]", &i); n == 0 || i < 0 || i >= len(r.Outputs) {
		return ""
	}
	return fmt.Sprintf("output %s, of type %s, ", r.Outputs[i].Name, r.Outputs[i].Datatype)
}

func (e *Encoder) members(r *stream.Result) ([]byte, error) {
	e.reply.Reset()
	for i := range r.Outputs {
		e.reply.Outputs = append(e.reply.Outputs, frames.Message(&r.Outputs[i]))
	}
	e.reply.Params = frames.AppendParams(e.reply.Params, r.Params)
	out, err := oip.AppendResponse(e.outputs[:0], &e.reply, oip.NeverBinary)
	e.outputs = out
	if own := (*stream.Error)(nil); errors.Is(err, oip.ErrNotJSON) && errors.As(err, &own) {
		return nil, stream.Errorf(stream.Unsupported, own.Field, "%scannot be written as JSON, as results of server "+
			"streams are (NaN, infinities, FP16, BF16 and BYTES that are not UTF-8 cannot): use a model without "+
			"this output, such as a graph that does not list it under outputs, or a class that saves pictures itself",
			outputNamed(own.Field, r))
	}
	if err != nil {
		return nil, err
	}
	dst := oip.AppendString([]byte(`,"model":`), r.Model.Name)
	dst = oip.AppendString(append(dst, `,"version":`...), r.Model.Version)
	if r.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	if r.Width > 0 {
		dst = strconv.AppendInt(append(dst, `,"width":`...), int64(r.Width), 10)
		dst = strconv.AppendInt(append(dst, `,"height":`...), int64(r.Height), 10)
	}
	if t := &r.Timing; t.Done != 0 && t.Received != 0 {
		dst = strconv.AppendInt(append(dst, `,"total_us":`...), t.Done.Sub(t.Received).Microseconds(), 10)
	}
	return append(dst, out[len(noModel):len(out)-1]...), nil
}
