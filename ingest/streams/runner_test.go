package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/buf"
)

// Missing settings take their defaults; before Serve nothing runs.
func TestDefaults(t *testing.T) {
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := New(h, Options{})
	if a.opts.Heartbeat != 15*time.Second || a.opts.PongWait != 10*time.Second || a.opts.Log == nil {
		t.Errorf("%+v", a.opts)
	}
	if a.run("x", func() { t.Error("it runs") }) {
		t.Error("something runs before Serve")
	}
	h, _ = httpd.New(httpd.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if a := New(h, Options{Heartbeat: 1, PongWait: 2}); a.opts.Heartbeat != 1 || a.opts.PongWait != 2 {
		t.Errorf("%+v", a.opts)
	}
}

// backend is a backend with a settable state of the server.
type backend struct {
	ingest.Backend
	state ingest.State
}

func (b *backend) Sequences() *ingest.Sequences { return nil }
func (b *backend) State() ingest.State          { return b.state }

// recorder notes the messages of a log.
type recorder struct {
	slog.Handler
	all *[]string
}

func (l recorder) Enabled(context.Context, slog.Level) bool { return true }
func (l recorder) Handle(_ context.Context, r slog.Record) error {
	*l.all = append(*l.all, r.Message)
	return nil
}

// The log reports the begin and the end of a failure, but no failure while the server starts or ends.
func TestFailuresAreLogged(t *testing.T) {
	var log []string
	b := &backend{}
	a := &Adapter{opts: Options{Log: slog.New(recorder{slog.DiscardHandler, &log})}, backend: b}
	f := &runner{a: a, logged: map[string]string{}}
	first, second := errors.New("first"), errors.New("second")
	for i, step := range []struct {
		state  ingest.State
		err    error // nil: the stream runs again
		logged int
	}{
		{ingest.State{}, first, 0}, {ingest.State{Ready: true}, first, 1}, {ingest.State{}, first, 1},
		{ingest.State{}, second, 2}, {ingest.State{}, nil, 3},
		{ingest.State{}, nil, 3}, {ingest.State{Draining: true}, first, 3}, {ingest.State{Ready: true}, first, 4},
	} {
		b.state = step.state
		if step.err != nil {
			f.failed("", step.err)
		} else {
			f.recovered("")
		}
		if len(log) != step.logged {
			t.Errorf("step %d: %q", i, log)
		}
	}
}

// The totals of a stream sum over all its sources. A stream without a source still has a state.
func TestTotalsOfSources(t *testing.T) {
	f := &runner{restarts: 3, skipped: 4}
	f.frames.Store(11)
	f.lost.Store(22)
	total := Totals{Frames: 11, Lost: 22, Skipped: 4, Restarts: 3}
	f.setIdle(sources.Status{State: sources.Waiting})
	if s := f.state(); s.State != sources.Waiting || s.Since.IsZero() || f.totals() != total {
		t.Errorf("%+v, %+v", s, f.totals())
	}
	current(f)
	f.setIdle(sources.Status{State: sources.Ended})
	if s := f.state(); s.State != sources.Ended {
		t.Errorf("%+v", s)
	}
}

// current returns a subscription whose frames the runner takes.
func current(f *runner) *subscription {
	g := &subscription{f: f, src: sources.NewHub(nil, nil, nil, false,
		nil).Subscribe(sources.Input{Address: "http://a/"},
		sources.Options{})}
	f.subscription = g
	f.current.Store(g)
	return g
}

// next returns the oldest result of a queue.
func (q *endings) next() ending {
	e, _ := q.pop()
	return e
}

// Frame counts continue across sources, including a source that cannot be read.
func TestFramesAreCountedOn(t *testing.T) {
	mem := buf.NewPool(0)
	f := &runner{queue: newEndings(4)}
	f.frames.Store(101)
	g := current(f)
	c := &consumer{f: f, preview: new(preview)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := &modelFeed{f: f, c: c, ctx: ctx, cancel: cancel, window: ingest.NewWindow()}
	f.feeds.Store(&[]*modelFeed{o})
	o.stream = stream.New(&stream.Model{AcceptsAnyInput: true, MaxBatch: 1}, nowhere{}, o,
		stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 4}})
	l, err := mem.Copy([]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	g.frame(stream.Frame{Seq: 1, Payload: l.Bytes(), Lease: l})
	r, _ := o.stream.Take(stream.Now(), 1, nil, 0)
	if r == nil || r.Seq != 101 {
		t.Fatalf("%+v", r)
	}
	r.Finish(nil, nil, true)
	r.Unbind()
	e := f.queue.next()
	f.deliver(nil, e)
	e.o.free(e.r)
	g.unreadable(stream.Frame{Seq: 2, CaptureUS: 7}, errors.New("x"))
	e = f.queue.next()
	if f.deliver(nil, e); e.r.Seq != 102 || e.r.CaptureUS != 7 || e.r.Outcome != stream.Failed || c.errors != 1 ||
		c.answered != 1 {
		t.Errorf("%+v, %d errors, %d answered", e.r, c.errors, c.answered)
	}
	f.idle, f.consumers = &sources.Status{State: sources.Running}, []*consumer{c}
	if r := f.report(); r.Error == nil || r.Models[0].Error == nil || r.Models[0].Error.Message != r.Error.Message ||
		!strings.Contains(r.Error.Message, "x") {
		t.Errorf("a model whose newest frame failed is reported as %+v", r)
	}
	c.countDelivered(&stream.Result{Outcome: stream.Answered}, nil)
	if r := f.report(); r.Error != nil || r.Models[0].Error != nil {
		t.Errorf("a model that answers again is reported as %+v", r)
	}
	o.Push(&stream.Result{Outcome: stream.Dropped, Reason: stream.Stale})
	if c.drops[stream.Stale] != 1 {
		t.Errorf("%v", c.drops)
	}
}

// A watcher of the newest line gets the newest line, whatever other watchers do.
func TestNewestLines(t *testing.T) {
	var h fanout
	var all []*watcher
	for range 3 {
		w, ok := h.watch(1, true, "")
		if !ok {
			t.Fatal("closed")
		}
		all = append(all, w)
	}
	slow, _ := h.watch(1, false, "")
	for i := range 3 {
		h.send([]byte{byte(i)}, "")
	}
	for _, w := range all {
		if line := <-w.lines; line[0] != 2 || w.lost.Load() != 0 {
			t.Errorf("line %d, %d lost", line[0], w.lost.Load())
		}
	}
	if line := <-slow.lines; line[0] != 0 || slow.lost.Load() != 2 || h.lost.Load() != 2 {
		t.Errorf("line %d, %d lost", line[0], slow.lost.Load())
	}
	h.close()
	h.close()
	if _, ok := h.watch(1, true, ""); ok || h.size() != 0 {
		t.Error("somebody watches what is closed")
	}
}

// Lines in the format of each kind of watcher, with the number of lost lines; a line that cannot be written is an
// error.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		f                        format
		line, lost, empty, shown string
		closing                  string
	}{
		{events, "data: x\n\n", "event: lost\ndata: {\"lost\":2}\n\ndata: x\n\n", ": still here\n\n",
			": still here\n\n", "event: closed\ndata: x\n\n"},
		{lines, "x\n", "{\"lost\":2}\nx\n", "\n", "\n", "x\n"},
		{pictures, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 1\r\n\r\nx\r\n",
			"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 1\r\n\r\nx\r\n", "",
			"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 1\r\n\r\nx\r\n", ""},
	} {
		write := func(f func(io.Writer) error) string {
			var out strings.Builder
			if err := f(&out); err != nil {
				t.Error(err)
			}
			if broken := (brokenPipe{}); out.Len() > 0 && f(broken) == nil {
				t.Errorf("%s: no error where nothing can be written", c.f.mime)
			}
			return out.String()
		}
		for _, x := range []struct {
			want string
			f    func(io.Writer) error
		}{
			{c.line, func(w io.Writer) error {
				return c.f.line(w, []byte("x"), 0)
			}}, {c.lost, func(w io.Writer) error { return c.f.line(w, []byte("x"), 2) }},
			{c.empty, func(w io.Writer) error {
				return c.f.keepAlive(w, nil)
			}}, {c.shown, func(w io.Writer) error { return c.f.keepAlive(w, []byte("x")) }},
			{c.closing, func(w io.Writer) error {
				if c.f.closing == nil {
					return nil
				}
				return c.f.closing(w, []byte("x"))
			}},
		} {
			if got := write(x.f); got != x.want {
				t.Errorf("%s: %q, want %q", c.f.mime, got, x.want)
			}
		}
	}
}

// brokenPipe takes nothing.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Results handed to the sinks count with their age; parts and errors do not.
func TestDeliveredResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consumer{f: &runner{}}
		deliver := func(r stream.Result, age time.Duration) {
			r.Timing.Received = stream.Now()
			time.Sleep(age)
			c.countDelivered(&r, nil)
		}
		deliver(stream.Result{Outcome: stream.Answered}, time.Second)
		deliver(stream.Result{Outcome: stream.Answered, Partial: true}, 10*time.Second)
		deliver(stream.Result{Outcome: stream.Failed}, 10*time.Second)
		deliver(stream.Result{Outcome: stream.Answered}, 2*time.Second)
		if c.aged != 2 || c.age != 3*time.Second || c.last.IsZero() {
			t.Errorf("%d results, %v, the last at %v", c.aged, c.age, c.last)
		}
	})
}

// A result is a line of JSON with all known fields.
func TestLines(t *testing.T) {
	m := &stream.Model{Name: "m", Version: "2"}
	at := stream.Now()
	received := at.Wall().UnixMicro()
	for _, c := range []struct {
		r    stream.Result
		want string
	}{
		{stream.Result{Outcome: stream.Answered, Seq: 1, CaptureUS: 2, Model: m},
			`{"stream":"door","seq":1,"pts_us":2,"model":"m","version":"2"`},
		{stream.Result{Outcome: stream.Answered, Model: m, Partial: true, Width: 3, Height: 4},
			`{"stream":"door","seq":0,"pts_us":0,"model":"m","version":"2","partial":true,"width":3,"height":4`},
		{stream.Result{Outcome: stream.Answered, Model: m,
			Timing: stream.Timing{Received: at, Done: at.Add(5 * time.Millisecond)}},
			fmt.Sprintf(
				`{"stream":"door","seq":0,"pts_us":0,"received_us":%d,"model":"m","version":"2","total_us":5000`,
				received)},
		{stream.Result{Outcome: stream.Answered, Model: m, Timing: stream.Timing{Received: at}},
			fmt.Sprintf(`{"stream":"door","seq":0,"pts_us":0,"received_us":%d,"model":"m","version":"2"`, received)},
		{stream.Result{Outcome: stream.Answered, Model: m, Timing: stream.Timing{Done: at}},
			`{"stream":"door","seq":0,"pts_us":0,"model":"m","version":"2"`},
		{stream.Result{Outcome: stream.Failed, Err: stream.Errorf(stream.Timeout, "", "late")},
			`{"stream":"door","seq":0,"pts_us":0,"model":"m","error":{"code":"timeout","message":"late",` +
				`"retryable":true,"retry_after_ms":1000}}`},
	} {
		var e sinks.Encoder
		line, failed := e.Line("stream", "door", "m", &c.r)
		if failed != nil {
			t.Error(failed)
		}
		got := string(line)
		rest, ok := strings.CutPrefix(got, c.want)
		if !ok || strings.Contains(rest, "_us") || strings.Contains(rest, "width") || !json.Valid([]byte(got)) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A result that reaches the sinks after its model's removal counts for the stream.
func TestCountsAfterAModelHasLeft(t *testing.T) {
	f := &runner{}
	c := &consumer{f: f}
	end := func() {
		c.countDelivered(&stream.Result{Outcome: stream.Answered}, nil)
		c.countDelivered(&stream.Result{Outcome: stream.Failed, Err: errors.New("x")}, nil)
		c.count(&stream.Result{Outcome: stream.Dropped, Reason: stream.Closed}, nil)
	}
	end()
	f.gone.add(&c.counts) // as left does
	c.countsAdded = true
	end()
	if n := f.gone; n.answered != 2 || n.errors != 2 || n.drops[stream.Closed] != 2 {
		t.Errorf("%+v", n)
	}
}
