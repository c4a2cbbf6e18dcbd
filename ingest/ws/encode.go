package ws

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// encoder writes replies. Its memory is used again; it is for one goroutine at
// a time.
type encoder struct {
	text  []byte
	whole []byte // a binary message whose parts are not in one place
	reply oip.InferResponse

	channel *channel       // of millrace.v1, nil in plain mode
	id      string         // of the call that the message answers, or ""
	told    stream.Outcome // what the message says, which is an error where a result cannot be sent
}

// source is what a reply says of a pulled video.
type source struct {
	width, height int
	pulled        bool
	id            string // of the call that asked for it
}

// encode returns the message of r, and whether it is a binary one. It is valid
// until the next call or until r is released.
func (e *encoder) encode(r *stream.Result, form outputs, src source, c *channel) (msg []byte, isBinary bool) {
	var err error
	e.channel, e.told, e.id = c, r.Outcome, src.id
	switch {
	case r.Outcome == stream.Dropped:
		e.text = append(e.seq(r), `,"dropped":"`...)
		e.text = append(append(e.text, r.Reason...), '"', '}')
	case r.Outcome == stream.Failed:
		e.failed(r, r.Err)
	case form == asBinary:
		if msg, err = e.binary(r, src); err == nil {
			return msg, true
		}
	case form == asReply:
		err = e.replyTo(r, src)
	default:
		err = e.json(r, form, src)
	}
	if err != nil {
		e.failed(r, unsendable(err))
	}
	return e.text, false
}

func (e *encoder) failed(r *stream.Result, err error) {
	e.told = stream.Failed
	if e.channel == nil {
		e.text = append(appendError(append(e.seq(r), ','), err), '}')
		return
	}
	m := errorMessageOf(err)
	m.SID, m.Seq, m.Ack, m.Limit = &e.channel.sid, &r.Seq, e.channel.acked.Load(), e.channel.limit()
	e.text = wire.AppendError(e.text[:0], m)
}

// seq begins a text message about a frame in plain mode.
func (e *encoder) seq(r *stream.Result) []byte {
	dst := append(appendID(append(e.text[:0], '{'), e.id), `"seq":`...)
	return strconv.AppendUint(dst, r.Seq, 10)
}

// appendID begins the members of a reply to a call. Other replies have no id.
func appendID(dst []byte, id string) []byte {
	if id == "" {
		return dst
	}
	return append(oip.AppendString(append(dst, `"id":`...), id), ',')
}

// head begins the result of a frame in millrace.v1.
func (e *encoder) head(r *stream.Result) []byte {
	c := e.channel
	m := wire.Result{
		SID: c.sid, Seq: r.Seq, Ack: c.acked.Load(), Limit: c.limit(), CaptureUS: r.CaptureUS, Model: r.Model.Name, Version: r.Model.Version,
		Batch: r.BatchSize, Width: r.Width, Height: r.Height, Partial: r.Partial, Timing: timing(&r.Timing),
	}
	return wire.AppendResultHead(e.text[:0], &m)
}

// drops is the message about frames that were dropped for one reason.
func (e *encoder) drops(c *channel, d *drops) []byte {
	e.text = wire.AppendDrop(e.text[:0], &wire.Drop{SID: c.sid, Seqs: d.ranges, Reason: string(d.reason), Ack: c.acked.Load(), Limit: c.limit()})
	return e.text
}

// unsendable says why a result cannot be sent as asked. Values that JSON does
// not have are the one case that the client can do something about.
func unsendable(err error) error {
	var oe *stream.Error
	if errors.As(err, &oe) {
		return stream.Errorf(stream.Unsupported, oe.Field, "%s (outputs=binary can send every value)", oe.Msg)
	}
	return err
}

func appendError(dst []byte, err error) []byte {
	code := stream.CodeOf(err)
	dst = append(dst, `"error":{"code":"`...)
	dst = append(dst, code...)
	dst = append(dst, `","message":`...)
	dst = oip.AppendString(dst, err.Error())
	if code.Retryable() {
		dst = append(dst, `,"retryable":true`...)
	}
	return append(dst, '}')
}

// errorMessage is an error that belongs to no frame.
func errorMessage(err error) []byte { return append(appendError([]byte{'{'}, err), '}') }

// emptyModel is what AppendResponse begins with when it is given no model.
const emptyModel = `{"model_name":"",`

// json writes the text of a result to e.text.
func (e *encoder) json(r *stream.Result, form outputs, src source) (err error) {
	if e.channel != nil {
		dst := e.head(r)
		if form == asJSON {
			dst, err = e.members(append(dst, ','), r)
		}
		e.text = append(dst, '}')
		return err
	}
	dst := append(e.seq(r), `,"model":`...)
	dst = oip.AppendString(dst, r.Model.Name)
	if r.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	if form == asJSON {
		if dst, err = e.members(append(dst, ','), r); err != nil {
			return err
		}
	}
	dst = append(dst, `,"timing":{`...)
	dst = appendTiming(dst, &r.Timing)
	dst = append(dst, '}')
	for _, f := range [...]struct {
		key string
		n   int
	}{
		{`,"width":`, r.Width}, {`,"height":`, r.Height},
		{`,"source_width":`, src.width}, {`,"source_height":`, src.height},
		{`,"batch":`, r.BatchSize},
	} {
		if f.n > 0 {
			dst = strconv.AppendInt(append(dst, f.key...), int64(f.n), 10)
		}
	}
	if src.pulled {
		dst = strconv.AppendInt(append(dst, `,"pts_us":`...), r.CaptureUS, 10)
	}
	e.text = append(dst, '}')
	return nil
}

// members appends the outputs and parameters of a result, as members of the
// object that dst begins.
func (e *encoder) members(dst []byte, r *stream.Result) ([]byte, error) {
	// AppendResponse writes the members of a reply behind a name of its own.
	// That text is as long as emptyModel and always shorter than what stands
	// here already, so it is let write over the end of it and mended.
	e.fill(r, false)
	at := len(dst) - len(emptyModel)
	var mended [len(emptyModel)]byte
	copy(mended[:], dst[at:])
	out, err := oip.AppendResponse(dst[:at], &e.reply, oip.Never)
	e.reply.Reset()
	if err != nil {
		return out, err
	}
	copy(out[at:], mended[:])
	return out[:len(out)-1], nil
}

// replyTo writes a result as a reply of the Open Inference Protocol.
func (e *encoder) replyTo(r *stream.Result, src source) (err error) {
	e.fill(r, true)
	e.number("seq", int64(r.Seq))
	e.number("pts_us", r.CaptureUS)
	e.reply.ID = src.id
	e.text, err = oip.AppendResponse(e.text[:0], &e.reply, oip.Never)
	e.reply.Reset()
	return err
}

// timing is the parts of a frame's way; those that were not gone are 0. Times
// are microseconds; ReceivedUS is the time of day.
func timing(t *stream.Timing) (w wire.Timing) {
	span := func(from, to stream.Instant) int64 {
		if from == 0 || to == 0 {
			return 0
		}
		return to.Sub(from).Microseconds()
	}
	if t.Received != 0 {
		w.ReceivedUS = t.Received.Wall().UnixMicro()
	}
	w.QueueUS, w.PrepareUS = span(t.Received, t.Dequeued), span(t.Dequeued, t.Started)
	w.RunUS, w.TotalUS = span(t.Started, t.Done), span(t.Received, t.Done)
	return w
}

// spans calls f for the parts of a frame's way that were gone.
func spans(t *stream.Timing, f func(name string, us int64)) {
	w := timing(t)
	for _, s := range [...]struct {
		name string
		us   int64
		gone bool
	}{
		{"received_us", w.ReceivedUS, t.Received != 0},
		{"queue_us", w.QueueUS, t.Received != 0 && t.Dequeued != 0},
		{"prepare_us", w.PrepareUS, t.Dequeued != 0 && t.Started != 0},
		{"run_us", w.RunUS, t.Started != 0 && t.Done != 0},
		{"total_us", w.TotalUS, t.Received != 0 && t.Done != 0},
	} {
		if s.gone {
			f(s.name, s.us)
		}
	}
}

func appendTiming(dst []byte, t *stream.Timing) []byte {
	first := true
	spans(t, func(name string, us int64) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), name...), `":`...)
		dst = strconv.AppendInt(dst, us, 10)
	})
	return dst
}

// fill takes r's outputs and parameters over into e.reply.
func (e *encoder) fill(r *stream.Result, named bool) {
	e.reply.Outputs = slices.Grow(e.reply.Outputs[:0], len(r.Outputs))
	for i := range r.Outputs {
		t := &r.Outputs[i]
		e.reply.Outputs = append(e.reply.Outputs, oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data})
	}
	e.reply.ModelName, e.reply.ModelVersion = "", ""
	e.reply.Params = e.reply.Params[:0]
	if named {
		e.reply.ModelName, e.reply.ModelVersion = r.Model.Name, r.Model.Version
		spans(&r.Timing, e.number)
		e.number("batch", int64(r.BatchSize))
	}
	if len(r.Params) > 0 {
		names := make([]string, 0, len(r.Params))
		for k := range r.Params {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			e.param(k, r.Params[k])
		}
	}
}

func (e *encoder) number(key string, n int64) {
	e.reply.Params = append(e.reply.Params, oip.Param{Key: key, Kind: oip.Int, Int: n})
}

func (e *encoder) param(key string, value any) {
	if p, ok := oip.ParamOf(key, value); ok {
		e.reply.Params = append(e.reply.Params, p)
	}
}

// binary returns a result as header, length, JSON and tensors. Where the
// tensors fill their lease and nobody else holds it, the rest is put in front
// of them and nothing is copied.
func (e *encoder) binary(r *stream.Result, src source) ([]byte, error) {
	e.fill(r, true)
	if r.Partial {
		e.param("partial", true)
	}
	if src.pulled && src.width > 0 {
		e.number("source_width", int64(src.width))
		e.number("source_height", int64(src.height))
	}
	var sid uint32
	if c := e.channel; c != nil {
		sid = c.sid
		e.number("ack", int64(c.acked.Load()))
		e.number("credit_limit", int64(c.limit()))
	}
	var err error
	e.text, err = oip.AppendResponse(e.text[:0], &e.reply, oip.Always)
	e.reply.Reset()
	if err != nil {
		return nil, err
	}
	front := wire.HeaderLen + wire.TensorsPrefixLen + len(e.text)
	if r.Contiguous && r.Lease != nil {
		if head, ok := r.Lease.Prepend(front); ok {
			putHead(head, r, sid, e.text)
			return r.Lease.Bytes(), nil
		}
	}
	e.whole = slices.Grow(e.whole[:0], front)[:front]
	putHead(e.whole, r, sid, e.text)
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

// keep says whether the encoder's memory is worth keeping for the next session.
func (e *encoder) keep() bool { return cap(e.text) <= 1<<20 && cap(e.whole) <= 4<<20 }
