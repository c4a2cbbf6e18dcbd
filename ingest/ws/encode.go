package ws

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"millrace/internal/oip"
	"millrace/stream"
)

// The binary header's fields, see docs/protocol.
const (
	headerLen     = 32
	headerVersion = 1
	kindResult    = 3
	codecTensor   = 12
)

// encoder writes replies. Its memory is used again; it is for one goroutine at
// a time.
type encoder struct {
	text  []byte
	whole []byte // a binary message whose parts are not in one place
	reply oip.InferResponse

	channel *channel // of millrace.v1, nil in plain mode
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
	e.channel = c
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
	if e.channel == nil {
		e.text = append(appendError(append(e.seq(r), ','), err), '}')
		return
	}
	code := stream.CodeOf(err)
	e.text = append(e.begin("error", r), `,"code":"`...)
	e.text = append(append(e.text, code...), `","message":`...)
	e.text = oip.AppendString(e.text, err.Error())
	e.text = append(strconv.AppendBool(append(e.text, `,"retryable":`...), code.Retryable()), '}')
}

// seq begins a text message about a frame.
func (e *encoder) seq(r *stream.Result) []byte {
	if e.channel != nil {
		return e.begin("result", r)
	}
	return strconv.AppendUint(append(e.text[:0], `{"seq":`...), r.Seq, 10)
}

// begin begins a text message of millrace.v1 about a frame.
func (e *encoder) begin(kind string, r *stream.Result) []byte {
	c := e.channel
	dst := append(append(append(e.text[:0], `{"type":"`...), kind...), `","sid":`...)
	dst = strconv.AppendUint(dst, uint64(c.sid), 10)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), r.Seq, 10)
	dst = strconv.AppendInt(append(dst, `,"capture_us":`...), r.CaptureUS, 10)
	return c.credit(dst)
}

// credit appends what has been ended of the stream, and what may be sent.
func (c *channel) credit(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, `,"ack":`...), c.acked.Load(), 10)
	return strconv.AppendUint(append(dst, `,"credit_limit":`...), c.limit(), 10)
}

// drops is the message about frames that were dropped for one reason.
func (e *encoder) drops(c *channel, d *drops) []byte {
	dst := strconv.AppendUint(append(e.text[:0], `{"type":"drop","sid":`...), uint64(c.sid), 10)
	dst = append(append(append(dst, `,"reason":"`...), d.reason...), `","seqs":[`...)
	for i, r := range d.ranges {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(append(dst, '['), r[0], 10)
		dst = append(strconv.AppendUint(append(dst, ','), r[1], 10), ']')
	}
	e.text = append(c.credit(append(dst, ']')), '}')
	return e.text
}

// unsendable says why a result cannot be sent as asked. Values that JSON does
// not have are the one case that the client can do something about.
func unsendable(err error) error {
	var oe *oip.Error
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
func (e *encoder) json(r *stream.Result, form outputs, src source) error {
	dst := append(e.seq(r), `,"model":`...)
	dst = oip.AppendString(dst, r.Model.Name)
	if e.channel != nil {
		dst = oip.AppendString(append(dst, `,"version":`...), r.Model.Version)
	}
	if r.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	dst = append(dst, ',')
	if form == asJSON {
		// AppendResponse writes the members of a reply behind a name of its own.
		// That text is as long as emptyModel and always shorter than what stands
		// here already, so it is let write over the end of it and mended.
		e.fill(r, false)
		at := len(dst) - len(emptyModel)
		var mended [len(emptyModel)]byte
		copy(mended[:], dst[at:])
		out, err := oip.AppendResponse(dst[:at], &e.reply, oip.Never)
		e.text = out
		e.reply.Reset()
		if err != nil {
			return err
		}
		copy(out[at:], mended[:])
		dst = append(out[:len(out)-1], ',')
	}
	dst = append(dst, `"timing":{`...)
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

// spans calls f for the parts of a frame's way that were gone. Times are
// microseconds; received_us is the time of day.
func spans(t *stream.Timing, f func(name string, us int64)) {
	span := func(name string, from, to stream.Instant) {
		if from != 0 && to != 0 {
			f(name, to.Sub(from).Microseconds())
		}
	}
	if t.Received != 0 {
		f("received_us", t.Received.Wall().UnixMicro())
	}
	span("queue_us", t.Received, t.Dequeued)
	span("prepare_us", t.Dequeued, t.Started)
	span("run_us", t.Started, t.Done)
	span("total_us", t.Received, t.Done)
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
	front := headerLen + 4 + len(e.text)
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

func putHead(dst []byte, r *stream.Result, sid uint32, text []byte) {
	clear(dst[:headerLen])
	dst[0], dst[1], dst[2] = headerVersion, kindResult, codecTensor
	le := binary.LittleEndian
	le.PutUint32(dst[4:], sid)
	le.PutUint64(dst[8:], r.Seq)
	le.PutUint64(dst[16:], uint64(r.CaptureUS))
	le.PutUint16(dst[24:], uint16(min(r.Width, math.MaxUint16)))
	le.PutUint16(dst[26:], uint16(min(r.Height, math.MaxUint16)))
	le.PutUint32(dst[headerLen:], uint32(len(text)))
	copy(dst[headerLen+4:], text)
}

// keep says whether the encoder's memory is worth keeping for the next session.
func (e *encoder) keep() bool { return cap(e.text) <= 1<<20 && cap(e.whole) <= 4<<20 }
