package apps

import (
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/coded"
)

// heartbeat is the time between two signs of life to a client that waits for events.
const heartbeat = 15 * time.Second

// takesEvents returns an error for a client that accepts other media types only.
func (x *Exchange) takesEvents() error {
	accept := x.Ctx.Get(fiber.HeaderAccept)
	if accept == "" {
		return nil
	}
	for one := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case httpd.EventStream, "text/*", "*/*":
			return nil
		}
	}
	return httpd.WithStatus(fiber.StatusNotAcceptable, stream.Errorf(stream.Unsupported, "Accept",
		"%.64q does not name %s, by which %s %s is answered", accept, httpd.EventStream, x.Route.Method, x.Route.Path))
}

// events answers a request with an event for each answer of the program, once the handler has
// returned. An error before the first one is the reply itself. It takes over f's memory and,
// when it reports true, ends the request.
func (x *Exchange) events(f stream.Frame) (live bool, err error) {
	c := x.Ctx
	head := Answer{Status: fiber.StatusOK, ContentType: httpd.EventStream + "; charset=utf-8",
		Header: map[string]string{fiber.HeaderCacheControl: "no-store"}}
	if x.style.Answer != nil {
		x.style.Answer(x, &head)
	}
	if err := x.guard(&head); err != nil {
		err = x.refuse(&f, err)
		f.Lease.Release()
		return false, err
	}
	head.head(c)
	model := x.Program.modelOf(x.Route)
	x.atOwn = x.atProgramAddress()
	x.a.http.GoLive(c, x.s.ctx, x.a.run, "events", func(l *httpd.Live) { x.sendEvents(l, model, f) }, func() {
		x.Ctx = nil
		x.Result = x.s.oneShot.Refuse(x.client, model, "", &f, httpd.ErrClientGone)
		f.Lease.Release()
		x.ended(httpd.StatusClientClosed, httpd.ErrClientGone)
		x.a.requests.End()
	})
	return true, nil
}

// run starts a goroutine of the adapter.
func (a *Adapter) run(name string, f func()) bool { return a.tasks.Go(name, f, nil) }

// sendEvents runs the request and sends its answers.
func (x *Exchange) sendEvents(l *httpd.Live, model string, f stream.Frame) {
	defer x.a.requests.End()
	x.Ctx = nil
	stop := l.Heartbeat(heartbeat, x.a.run)
	defer stop()
	sent := false
	each := func(r *stream.Result) error {
		var a Answer
		if err := x.part(&a, r); err != nil {
			return err
		}
		sent = true
		if err := l.Event("", a.Body); err != nil {
			return stream.Errorf(stream.Canceled, "", "the client does not read: %w", err)
		}
		return nil
	}
	ctx, cancel := x.limit(l.Context())
	defer cancel()
	r, err := x.s.oneShot.InferStream(ctx, x.client, model, "", f, each)
	x.Result = r
	err = x.loading(statusOf(err, r))
	if err == nil {
		switch p := r.Reply; {
		case p != nil && p.Status >= fiber.StatusBadRequest && x.style.Eager:
			err = x.refusal(r)
		case p != nil && p.Status >= fiber.StatusBadRequest && !sent:
			var a Answer
			if err = x.answer(&a, r); err == nil {
				denied := l.ReplyStatus(a.Status, a.fill, a.Body)
				a.Memory.Release()
				if denied {
					r.Release()
					x.ended(a.Status, nil)
					return
				}
				err = x.refusal(r) // behind a heartbeat
			}
		case len(r.Outputs) > 0:
			if data, e := element(r); e != nil || len(data) > 0 { // an empty one ends the parts
				err = each(r)
			}
		}
		if err != nil {
			r.CountUnsendable(err)
		}
		r.Release()
	}
	x.endEvents(l, err)
}

// part makes the data of an event of one answer.
func (x *Exchange) part(a *Answer, r *stream.Result) error {
	data, err := element(r)
	if err != nil {
		return stream.Errorf(stream.Internal, "", "an answer of program %s cannot be sent: %w", x.Program.Name, err)
	}
	a.Body = data
	return nil
}

// refusal is the error of a request to which the program has replied with a status.
func (x *Exchange) refusal(r *stream.Result) error {
	text, err := element(r)
	if err != nil {
		return err
	}
	return httpd.WithStatus(r.Reply.Status, stream.Errorf(stream.InvalidArgument, "", "%.4096s", text))
}

// endEvents sends what follows on the last event.
func (x *Exchange) endEvents(l *httpd.Live, err error) {
	if err == nil {
		if x.Route.OpenAI {
			_ = l.Event("", doneEvent)
		} else if x.style.End != nil {
			if name, data := x.style.End(x); data != nil || name != "" {
				_ = l.Event(name, data)
			}
		}
		_ = l.Begin()
		x.ended(fiber.StatusOK, nil)
		return
	}
	told, log := coded.ClientError(err)
	if log {
		x.a.opts.Log.Error("a request with several answers failed", "program", x.Program.Name, "error", err)
	}
	x.ended(httpd.StatusOf(told), err)
	if x.style.Eager && x.Result != nil {
		_ = l.Begin()
	}
	if x.style.Fail != nil {
		if a := x.style.Fail(x, told); a != nil && l.ReplyStatus(a.Status, a.fill, a.Body) {
			return
		}
	}
	if x.Route.OpenAI {
		text := openAIError(told)
		if !l.ReplyStatus(httpd.StatusOf(told), func(h *fasthttp.ResponseHeader) { h.SetContentType(typeJSON) }, text) {
			_ = l.Event("", text)
			_ = l.Event("", doneEvent)
		}
		return
	}
	if l.Fail(told) {
		return
	}
	name, data := "error", httpd.AppendError(nil, told)
	if x.style.Event != nil {
		name, data = x.style.Event(x, told)
	}
	_ = l.Event(name, data)
}
