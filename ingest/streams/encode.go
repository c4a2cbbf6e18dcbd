package streams

import (
	"strconv"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/stream"
)

// encoder writes results as lines of JSON, in the form of a WebSocket reply. It
// is for one goroutine.
type encoder struct {
	outputs []byte
	reply   oip.InferResponse
}

// line returns the JSON of r in new memory, without a line feed: it goes to many.
func (e *encoder) line(name string, r *stream.Result) []byte {
	dst := append(make([]byte, 0, 512), `{"stream":`...)
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
			return append(append(dst, out...), '}')
		}
	}
	return append(appendError(append(dst, ','), stream.CodeOf(err), err), '}')
}

// appendError appends the member "error".
func appendError(dst []byte, code stream.Code, err error) []byte {
	dst = oip.AppendString(append(dst, `"error":{"code":`...), string(code))
	dst = oip.AppendString(append(dst, `,"message":`...), err.Error())
	return append(dst, '}')
}

// noModel is what a reply without the name of a model begins with.
const noModel = `{"model_name":""`

func (e *encoder) members(r *stream.Result) ([]byte, error) {
	e.reply.Reset()
	for i := range r.Outputs {
		e.reply.Outputs = append(e.reply.Outputs, frames.Message(&r.Outputs[i]))
	}
	e.reply.Params = frames.AppendParams(e.reply.Params, r.Params)
	out, err := oip.AppendResponse(e.outputs[:0], &e.reply, oip.Never)
	e.outputs = out
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
