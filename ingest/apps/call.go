package apps

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

const (
	// maxHeaders is the most headers of a request. Their bytes are bounded by httpd.
	maxHeaders = 100
	// maxDeadline is the longest deadline of a request.
	maxDeadline = time.Hour
	// minPacked is the size of a reply from which it is compressed.
	minPacked = 4 << 10
)

// deadlineHeader is the name of the header with the time in which a request must be answered,
// in milliseconds. It is a header because the query belongs to the program.
const deadlineHeader = "Millrace-Deadline-Ms"

// bodyName is the name of the only output of a program's answer.
const bodyName = "body"

// call runs a request to a declared route. live says that it is answered by events, after the
// handler.
func (x *Exchange) call() (live bool, err error) {
	if x.style.Begin != nil {
		if err := x.style.Begin(x); err != nil {
			return false, x.refuse(nil, err)
		}
	}
	if x.a.draining() { // the models, which refuse it as well, may be gone before the adapter
		return false, x.refuse(nil, ingest.ErrDraining)
	}
	f, err := x.frame()
	as := single
	if err == nil {
		as, err = x.form(f.Payload)
	}
	if err != nil {
		err = x.refuse(&f, err)
		f.Lease.Release()
		return false, err
	}
	if x.style.Body != nil {
		if a := x.style.Body(x, f.Payload); a != nil {
			f.Lease.Release()
			x.send(a, nil)
			return false, nil
		}
	}
	switch as {
	case events:
		return x.events(f)
	case array, only:
		a, err := x.collect(f, as == only)
		if err != nil {
			return false, x.failed(err)
		}
		x.send(&a, nil)
		return false, nil
	}
	ctx, cancel := x.limit(x.a.http.Context(x.Ctx, x.s.ctx))
	defer cancel()
	r, err := x.s.oneShot.Infer(ctx, x.client, x.Program.modelOf(x.Route), "", f)
	x.Result = r
	x.trace()
	if errors.Is(err, ingest.ErrSeveral) {
		err = stream.Errorf(stream.Unsupported, "",
			"program %s has answered %s %s several times, which is not a route of events: declare it as one",
			x.Program.Name, x.Route.Method, x.Route.Path)
	}
	err = x.loading(statusOf(err, r))
	var a Answer
	if err == nil {
		if err = x.answer(&a, r); err != nil {
			r.CountUnsendable(err)
			r.Release()
		}
	}
	if err != nil {
		return false, x.failed(err)
	}
	x.send(&a, r)
	return false, nil
}

// errLimit ends a request that takes longer than its style allows.
var errLimit = stream.Errorf(stream.Timeout, "", "the program's longest time of a request is over")

// limit returns ctx with the longest time of the request.
func (x *Exchange) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if x.style.Limit != nil {
		if d := x.style.Limit(x); d > 0 {
			return context.WithTimeoutCause(ctx, d, errLimit)
		}
	}
	return ctx, func() {}
}

// statusOf adds the status of the program's reply to err, when the reply has a status of an error.
func statusOf(err error, r *stream.Result) error {
	if err != nil && r != nil && r.Reply != nil && r.Reply.Status >= fiber.StatusBadRequest && r.Reply.Status < 600 {
		return httpd.WithStatus(r.Reply.Status, err)
	}
	return err
}

// loading returns err, or what it means when the model of one of the program's stages is not
// loaded: it could not be, is being loaded, or is being replaced.
func (x *Exchange) loading(err error) error {
	if x.Result != nil || x.Route.Model == "" || stream.CodeOf(err) != stream.NotFound {
		return err
	}
	if name, reason := x.Program.failedPart(x.s.backend.Models(), x.Route.Model); reason != "" {
		return stream.Errorf(stream.Unavailable, "", "%s of program %s could not be loaded: %s", name, x.Program.Name,
			reason)
	}
	return stream.Errorf(stream.Unavailable, "", "%s of program %s is not loaded yet: try again in a moment",
		x.Route.Model, x.Program.Name)
}

// frame makes a frame of the request. It owns its memory, also with an error.
func (x *Exchange) frame() (f stream.Frame, err error) {
	c := x.Ctx
	f = stream.Frame{Codec: stream.Opaque, Arrived: stream.InstantOf(c.Context().Time())}
	call := &stream.Call{
		Endpoint: x.Route.Endpoint, Method: strings.Clone(c.Method()), Path: x.Path,
		Query:       withoutPair(string(c.Context().URI().QueryString()), "&", x.a.opts.Key),
		ContentType: string(c.Request().Header.ContentType()), Header: map[string]string{},
	}
	f.Call = call
	call.User = x.client.Name()
	var h frames.TraceHeaders
	n := 0
	c.Request().Header.VisitAll(func(name, value []byte) {
		h.Add(name, value)
		n++
		key := strings.ToLower(string(name))
		switch key {
		case "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "expect", "te",
			"trailer", "upgrade", "keep-alive":
			return // of the connection, or what the server has read
		case x.a.opts.Key:
			return
		case "authorization":
			scheme, _, _ := strings.Cut(string(value), " ")
			if x.client.Principal() != nil &&
				(strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic")) {
				return // a key of the server's, or a password, which browsers send again after a login
			}
		}
		if n > maxHeaders {
			return
		}
		v := string(value)
		if key == "cookie" {
			if v = x.cookiesOf(v); v == "" {
				return
			}
		}
		if old, twice := call.Header[key]; twice {
			join := ", "
			if key == "cookie" {
				join = "; "
			}
			v = old + join + v
		}
		call.Header[key] = v
	})
	f.TraceContext = x.a.contexts.Request(&h)
	if n > maxHeaders {
		return f, httpd.WithStatus(fiber.StatusRequestHeaderFieldsTooLarge,
			stream.Errorf(stream.TooLarge, "", "the request has %d headers: want at most %d", n, maxHeaders))
	}
	if f.Deadline, err = deadline(c.Get(deadlineHeader)); err != nil {
		return f, err
	}
	b := body{pool: x.s.backend.Memory(), share: accept.MemoryOf(c.Context().Conn())}
	largest := 0
	if x.style.MaxBody != nil {
		largest = x.style.MaxBody(x)
	}
	f.Payload, err = x.a.http.ReadBody(c, largest, b.grow)
	if f.Lease = b.buf; f.Lease != nil && err == nil {
		f.Lease.Resize(len(f.Payload))
	}
	return f, err
}

// withoutPair removes the pairs of that name from a query, or from the value of a header Cookie, whose
// pairs sep separates; name "" = none.
func withoutPair(text, sep, name string) string {
	if name == "" || text == "" {
		return text
	}
	pairs := strings.Split(text, sep)
	kept := slices.DeleteFunc(pairs, func(pair string) bool {
		key, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
		return strings.TrimSpace(key) == name
	})
	return strings.TrimSpace(strings.Join(kept, sep))
}

// deadline reads deadlineHeader.
func deadline(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseFloat(text, 64)
	d := time.Duration(ms * float64(time.Millisecond))
	if err != nil || math.IsNaN(ms) || ms <= 0 || ms > float64(maxDeadline/time.Millisecond) || d == 0 {
		return 0, stream.Errorf(stream.InvalidArgument, deadlineHeader,
			"%.32q is not a time in milliseconds, more than 0 and at most %d", text, maxDeadline/time.Millisecond)
	}
	return d, nil
}

// body is the memory that a request's body is read into.
type body struct {
	pool  *buf.Pool
	share *buf.ClientShare
	buf   *buf.Buf
}

// grow implements httpd.ReceiveBuffer: it makes room for n bytes, of which the first at bytes are kept.
func (b *body) grow(n, at int) ([]byte, error) {
	next, err := b.pool.Receive(b.share, b.buf, n, at)
	if err != nil {
		return nil, err
	}
	b.buf = next
	return next.Bytes(), nil
}

// answer makes the reply of a result, whose memory it uses.
func (x *Exchange) answer(a *Answer, r *stream.Result) error {
	data, err := element(r)
	if err != nil {
		return stream.Errorf(stream.Internal, "", "the answer of program %s cannot be sent: %w", x.Program.Name, err)
	}
	*a = Answer{Status: fiber.StatusOK, ContentType: x.Route.ContentType, Body: data}
	if p := r.Reply; p != nil {
		if p.Status != 0 {
			a.Status = p.Status
		}
		if p.ContentType != "" {
			a.ContentType = p.ContentType
		}
		a.Header = p.Header
	}
	if a.Status < 200 || a.Status > 599 {
		return stream.Errorf(stream.Internal, "", "program %s has answered with status %d: want 200 to 599",
			x.Program.Name, a.Status)
	}
	if x.style.Answer != nil {
		x.style.Answer(x, a)
	}
	if err := x.guard(a); err != nil {
		a.Memory.Release()
		a.Memory = nil
		return err
	}
	return nil
}

// element returns the only element of a program's answer, which is none for an empty one.
func element(r *stream.Result) ([]byte, error) {
	switch {
	case len(r.Outputs) == 0:
		return nil, nil
	case len(r.Outputs) > 1:
		return nil, errors.New("it has " + strconv.Itoa(len(r.Outputs)) + " outputs: want one, " + bodyName)
	}
	t := &r.Outputs[0]
	if t.Datatype != stream.Bytes {
		return nil, errors.New("output " + t.Name + " is " + string(t.Datatype) + ": want BYTES")
	}
	if len(t.Data) < 4 {
		return nil, errors.New("output " + t.Name + " has no element")
	}
	n := uint64(t.Data[0]) | uint64(t.Data[1])<<8 | uint64(t.Data[2])<<16 | uint64(t.Data[3])<<24
	if n != uint64(len(t.Data)-4) {
		return nil, errors.New("output " + t.Name + " has not one element")
	}
	return t.Data[4:], nil
}

// trace says which trace the request belongs to, and how long its steps took.
func (x *Exchange) trace() {
	if x.Result == nil {
		return
	}
	h := &x.Ctx.Response().Header
	h.SetBytesV("Traceresponse", frames.AppendTraceresponse(nil, x.Result))
	if timing := frames.AppendTiming(nil, &x.Result.Timing); len(timing) > 0 {
		h.SetBytesV("Server-Timing", timing)
	}
}

// head writes the header of a reply.
func (a *Answer) head(c *fiber.Ctx) {
	c.Status(a.Status)
	a.fill(&c.Response().Header)
}

// fill adds what a says to a header.
func (a *Answer) fill(h *fasthttp.ResponseHeader) {
	if a.ContentType != "" {
		h.SetContentType(a.ContentType)
	}
	for name, value := range a.Header {
		httpd.AddHeader(h, name, value)
	}
	for _, c := range a.Cookies {
		h.Add(fiber.HeaderSetCookie, c)
	}
}

// Write makes a, which has no Memory, the reply.
func (a *Answer) Write(c *fiber.Ctx) {
	a.head(c)
	c.Response().SetBodyRaw(a.Body)
}

// keepKey is the key under which the request keeps the memory of its reply until that is
// written.
type keepKey struct{}

// replyMemory releases the memory of a reply.
type replyMemory struct {
	r                    *stream.Result
	answerMemory, packed *buf.Buf
}

var _ io.Closer = (*replyMemory)(nil)

// Close is called by fasthttp when the reply has been written, or cannot be.
func (h *replyMemory) Close() error {
	if h.r != nil {
		h.r.Release()
	}
	h.answerMemory.Release()
	h.packed.Release()
	return nil
}

// send makes a the reply; r has the memory of its body, or is nil.
func (x *Exchange) send(a *Answer, r *stream.Result) {
	c := x.Ctx
	a.head(c)
	keep := &replyMemory{r: r, answerMemory: a.Memory}
	data := a.Body
	if len(data) >= minPacked && len(c.Response().Header.Peek(fiber.HeaderContentEncoding)) == 0 {
		lease := func(n int) []byte {
			b, err := x.s.backend.Memory().Lease(n)
			if err != nil {
				return nil
			}
			keep.packed = b
			return b.Bytes()
		}
		if packed, ok := httpd.Pack(c, x.a.http.Turns(), len(data), lease, bytes.NewReader(data)); ok {
			c.Response().Header.Set(fiber.HeaderContentEncoding, packed.Coding)
			data = packed.Body
		}
	}
	c.Response().SetBodyRaw(data)
	// fasthttp closes values of a request that are io.Closers when the request ends.
	c.Context().SetUserValue(keepKey{}, keep)
	x.ended(a.Status, nil)
}

// refuse counts the request as refused, and makes its reply. A request that did not arrive completely is not counted.
// f may be nil.
func (x *Exchange) refuse(f *stream.Frame, err error) error {
	if errors.Is(err, httpd.ErrIncomplete) {
		return x.failed(err)
	}
	if f == nil {
		f = &stream.Frame{Arrived: stream.InstantOf(x.Began)}
	}
	model := x.Program.Name
	if x.Route != nil {
		model = x.Program.modelOf(x.Route)
	}
	x.Result = x.s.oneShot.Refuse(x.client, model, "", f, err)
	x.trace()
	return x.failed(err)
}

// failed makes the reply to a request that failed, or returns the error of which the server
// makes it.
func (x *Exchange) failed(err error) error {
	if x.style.Fail != nil {
		if a := x.style.Fail(x, err); a != nil {
			a.Write(x.Ctx)
			x.ended(a.Status, err)
			return nil
		}
	}
	x.ended(httpd.StatusOf(err), err)
	if told, _ := coded.ClientError(err); x.Route != nil && x.Route.OpenAI && told == err {
		a := Answer{Status: httpd.StatusOf(err), ContentType: typeJSON, Body: openAIError(err)}
		a.Write(x.Ctx)
		return nil
	}
	return err
}

// ended tells the style of the end of a request.
func (x *Exchange) ended(status int, err error) {
	if x.Route != nil && x.style.Ended != nil {
		x.style.Ended(x, status, err)
	}
}
