package rest

import (
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// heartbeat is the time between two signs of life to a client that waits for events.
const heartbeat = 15 * time.Second

// multiRequest is a request with answers in another form than the answers of infer.
type multiRequest struct {
	*call
	a       *Adapter
	s       *service
	client  *ingest.Client
	model   string
	version string
	frame   stream.Frame
	fields  []string // members of a generate request that became inputs; nil for infer_stream
	text    []byte   // the answer being written
	large   buf.Buf  // memory of a long answer
}

// Close releases all memory when the reply has been written or cannot be.
func (q *multiRequest) Close() error {
	q.written()
	q.call.free()
	return nil
}

// free ends the request's use of the adapter and of memory. The frame owns separate memory.
func (q *multiRequest) free() {
	_ = q.Close()
	q.a.requests.End()
}

// ask reads a request that may have several answers: a generate request, or else a request in the form of infer.
func (a *Adapter) ask(c *fiber.Ctx, generate bool) (*multiRequest, error) {
	s, err := a.requests.Begin()
	if err != nil {
		a.noModel.Refuse("", err)
		return nil, err
	}
	q := &multiRequest{call: calls.Get().(*call), a: a, s: s, client: client(c)}
	q.Several = true
	if generate {
		q.model, q.version, q.frame, err = q.readWith(a, s, c, q.generate)
	} else if q.model, q.version, q.frame, err = q.readWith(a, s, c, q.call.frame); err == nil {
		err = q.onlyJSON()
	}
	if err == nil && q.Sequence.ID != (ingest.SequenceID{}) {
		err = stream.Errorf(stream.Unsupported, "parameters.sequence_id",
			"is not supported where a request may have several answers: send requests of a sequence to infer")
	}
	if err != nil {
		err = q.refused(c, err)
		q.frame.Lease.Release()
		q.free()
		return nil, err
	}
	return q, nil
}

// refused counts the request as refused with err, and returns err with the fields of the
// request.
func (q *multiRequest) refused(c *fiber.Ctx, err error) error {
	q.refuse(q.s, c, &q.frame, err)
	return q.named(err)
}

// named returns err with the place of the error in the request.
func (q *multiRequest) named(err error) error {
	err = inference.InRequest(err, q.Request.Inputs)
	if q.fields == nil {
		return err
	}
	return coded.RenameFunc(err, func(field string) string { return frames.InField(field, q.fields) })
}

// generate makes a frame of a generate request.
func (q *multiRequest) generate(a *Adapter, c *fiber.Ctx, m *stream.Model) (f stream.Frame, err error) {
	if name := q.opt.InferOnly(); name != "" {
		return f, stream.Errorf(stream.InvalidArgument, name,
			"is not an option of generate, whose body and answer are JSON: leave it out, or use infer")
	}
	body, err := a.http.ReadBody(c, 0, q.room)
	if err != nil {
		return f, err
	}
	if len(body) == 0 {
		return f, stream.Errorf(stream.InvalidArgument, "", "the body is empty: send a generate request in JSON")
	}
	text, fields, err := q.generated(body, m)
	if err != nil {
		return f, err
	}
	q.fields = fields
	copied, err := q.LeaseBody(len(text))
	if err != nil {
		return f, err
	}
	if err := q.decode(copied[:copy(copied, text)], -1, a.opts.Limits); err != nil {
		return f, err
	}
	return q.Frame(m)
}

// generated calls frames.Generate in a turn.
func (k *call) generated(body []byte, m *stream.Model) ([]byte, []string, error) {
	if k.turns.Begin(len(body)) {
		defer k.turns.End()
	}
	return frames.Generate(body, m)
}

// onlyJSON refuses outputs as binary data, since events cannot carry binary data.
func (q *multiRequest) onlyJSON() error {
	if q.opt.Outputs == request.AsBinary {
		return stream.Errorf(stream.Unsupported, "outputs", "events carry JSON: leave it out, or send json or none")
	}
	if q.opt.Data != "" {
		return stream.Errorf(stream.Unsupported, "data", "events carry JSON: leave it out, or call infer")
	}
	if !q.strict { // the body was no message
		return nil
	}
	if q.Request.BinaryOutput {
		return stream.Errorf(stream.Unsupported, "parameters.binary_data_output", "events carry JSON: leave it out")
	}
	for i := range q.Request.Outputs {
		if q.Request.Outputs[i].Binary {
			return stream.Errorf(stream.Unsupported, "outputs.parameters.binary_data",
				"events carry JSON: leave it out")
		}
	}
	return nil
}

// answer writes r, an answer of the model, as JSON.
func (q *multiRequest) answer(r *stream.Result) (err error) {
	before := q.Result
	q.Result = r
	defer func() { q.Result = before }()
	if q.opt.Outputs == request.AsNone {
		q.ReplyNone()
	} else if err := q.Reply(); err != nil {
		return err
	}
	q.Response.NotFinite = true // events carry JSON
	if q.turns.Begin(oip.TextSize(&q.Response, oip.NeverBinary)) {
		defer q.turns.End()
	}
	if n := oip.TextBound(&q.Response, oip.NeverBinary); n > maxUncharged {
		q.written()
		if err := q.s.gate.Memory().Renew(&q.large, n); err != nil {
			return err
		}
		q.text = q.large.Bytes()
	}
	if q.fields != nil {
		q.text, err = oip.AppendGenerated(q.text[:0], &q.Response)
	} else {
		q.text, err = oip.AppendResponse(q.text[:0], &q.Response, oip.NeverBinary)
	}
	if err != nil {
		err = noEvent(unsendable(err), r.Model)
	}
	return err
}

// noEvent adds the suitable calls to the error about a result that JSON cannot represent.
func noEvent(err error, m *stream.Model) error {
	var e *stream.Error
	if !errors.Is(err, oip.ErrNotJSON) || !errors.As(err, &e) {
		return err
	}
	infer := ", infer with outputs=binary in the query"
	if m.Decoupled {
		infer = "" // answers only requests with exactly one answer
	}
	return stream.Errorf(e.Code, e.Field, "%s. This call answers JSON only: use a WebSocket at /v2/models/%s/stream "+
		"with outputs=binary in its query%s, or ModelStreamInfer of gRPC", e.Msg, m.Name, infer)
}

// written releases the memory of a long answer.
func (q *multiRequest) written() {
	if q.large.Len() > 0 {
		q.large.Release()
		q.text = nil
	}
}

// generate answers a generate request with the only answer of the model.
func (a *Adapter) generate(c *fiber.Ctx) error {
	q, err := a.ask(c, true)
	if err != nil {
		return err
	}
	// The handler owns the request and its memory until the handover to the reply.
	handed := false
	defer func() {
		if !handed {
			q.free()
		}
	}()
	n := 0
	r, err := q.s.oneShot.InferStream(a.http.Context(c, q.s.ctx), q.client, q.model, q.version, q.frame,
		func(r *stream.Result) error {
			if n++; n > 1 {
				return answerCountError(r.Model)
			}
			return q.answer(r)
		})
	q.Result = r
	q.traceresponse(c)
	if last := err == nil && len(r.Outputs) > 0; err == nil && (n == 0 || last) {
		if err = q.answer(r); n > 0 || r.Model.Decoupled && !last {
			err = answerCountError(r.Model)
		}
		if err != nil {
			r.CountUnsendable(err)
		}
	}
	if err != nil {
		return q.named(err)
	}
	handed = true
	a.requests.End()
	c.Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(q.text)
	c.Context().SetUserValue(keepKey{}, q)
	return nil
}

// answerCountError returns the error for a model without an answer, or with several answers, to a generate request.
func answerCountError(m *stream.Model) error {
	return stream.Errorf(stream.Unsupported, "", "generate expects model to produce exactly 1 response, and model "+
		"%s, which is decoupled, produced none or several: use generate_stream", m.Name)
}

func (a *Adapter) generateStream(c *fiber.Ctx) error { return a.events(c, true) }
func (a *Adapter) inferStream(c *fiber.Ctx) error    { return a.events(c, false) }

// events answers a request with an event for each answer of the model. An error before the first answer is the reply
// itself.
func (a *Adapter) events(c *fiber.Ctx, generate bool) error {
	q, err := a.ask(c, generate)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, httpd.EventStream+"; charset=utf-8")
	c.Set(fiber.HeaderCacheControl, "no-store")
	a.http.GoLive(c, q.s.ctx, a.run, "events", q.send, func() {
		q.s.oneShot.Refuse(q.client, q.model, q.version, &q.frame, httpd.ErrClientGone)
		q.frame.Lease.Release()
		q.free()
	})
	return nil
}

// run starts a goroutine of the adapter.
func (a *Adapter) run(name string, f func()) bool { return a.tasks.Go(name, f, nil) }

// send runs the request and sends its answers.
func (q *multiRequest) send(l *httpd.Live) {
	defer q.free()
	stop := l.Heartbeat(heartbeat, q.a.run)
	defer stop()
	each := func(r *stream.Result) error {
		if err := q.answer(r); err != nil {
			return err
		}
		err := l.Event("", q.text)
		q.written()
		if err != nil {
			return stream.Errorf(stream.Canceled, "", "the client does not read: %w", err)
		}
		return nil
	}
	r, err := q.s.oneShot.InferStream(l.Context(), q.client, q.model, q.version, q.frame, each)
	q.Result = r
	if err == nil && (len(r.Outputs) > 0 || !r.Model.Decoupled) {
		if err = each(r); err != nil {
			r.CountUnsendable(err)
		}
	}
	switch {
	case err != nil:
		told, log := coded.ClientError(q.named(err))
		if log {
			q.a.opts.Log.Error("a request with several answers failed", "model", q.model, "error", err)
		}
		err = told
		if l.Fail(err) {
			return
		}
		name := "error"
		if q.fields != nil {
			name = "" // clients of generate_stream look for the member error
		}
		_ = l.Event(name, httpd.AppendError(nil, err))
	case q.fields == nil:
		_ = l.Event("end", []byte("{}"))
	default:
		_ = l.Begin()
	}
}
