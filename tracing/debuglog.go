package tracing

import (
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// DebugLog logs each request and each frame's ending, at level debug. At other levels, DebugLog costs one atomic
// read. A goroutine writes the lines, so that a slow log never delays a frame. The rate of lines is bounded for each
// model and each route; the next line contains the number of omitted lines as "suppressed". The methods are safe for
// concurrent use.
type DebugLog struct {
	level   *slog.LevelVar
	limiter *Limiter
	link    func(stream.TraceID) string // URL of a trace's page; nil = no page
	lines   chan debugLine
	lost    atomic.Uint64 // discarded lines, because the queue lines was full
	stop    chan struct{}
	stopped chan struct{}
}

// debugLine is one line with the key for the rate limit.
type debugLine struct {
	key, msg string
	args     []any
}

// debugQueue is how many lines may wait to be written.
const debugQueue = 1024

// DebugOptions configure a DebugLog.
type DebugOptions struct {
	Log   *slog.Logger
	Level *slog.LevelVar              // of Log
	Rate  int                         // most lines per second of one model or route; 0 = 1
	Link  func(stream.TraceID) string // URL of a trace's page; nil = no page
}

// NewDebugLog returns a DebugLog with a goroutine that runs until Close.
func NewDebugLog(o DebugOptions) *DebugLog {
	d := &DebugLog{
		level: o.Level, limiter: NewLimiter(o.Log, time.Second), link: o.Link,
		lines: make(chan debugLine, debugQueue), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	d.limiter.Max = o.Rate
	go d.write()
	return d
}

// On reports whether the level is debug. Callers check On before making a line.
func (d *DebugLog) On() bool { return d.level.Level() <= slog.LevelDebug }

// Close writes the waiting lines and stops. Later lines are discarded. Close must not be called twice.
func (d *DebugLog) Close() {
	close(d.stop)
	<-d.stopped
	d.limiter.Close()
}

// write writes lines until Close.
func (d *DebugLog) write() {
	defer close(d.stopped)
	for {
		select {
		case l := <-d.lines:
			d.writeLine(l)
			continue
		case <-d.stop:
		}
		for {
			select {
			case l := <-d.lines:
				d.writeLine(l)
			default:
				return
			}
		}
	}
}

func (d *DebugLog) writeLine(l debugLine) {
	if n := d.lost.Swap(0); n > 0 {
		d.limiter.Log(slog.LevelDebug, "lost", "debug lines were discarded, because the log is slow", "suppressed", n)
	}
	d.limiter.Log(slog.LevelDebug, l.key, l.msg, l.args...)
}

// put queues a line, or discards the line when the queue is full.
func (d *DebugLog) put(key, msg string, args []any) {
	select {
	case d.lines <- debugLine{key, msg, args}:
	default:
		d.lost.Add(1)
	}
}

// Request is an answered request, for the log.
type Request struct {
	Protocol string // http or grpc
	Method   string // of HTTP
	Route    string // route pattern, the key for the rate limit: few values
	Path     string // as sent, without its query; "" = the same as Route
	Status   int    // of HTTP, or the code of gRPC
	Duration time.Duration
	In, Out  int // bytes of the bodies; negative = not known
	Trace    stream.TraceID
}

// maxPath is how much of a path is logged.
const maxPath = 256

// Request logs a request. The caller has checked On.
func (d *DebugLog) Request(r Request) {
	args := make([]any, 0, 10)
	args = append(args, slog.String("protocol", r.Protocol))
	if r.Method != "" {
		args = append(args, slog.String("method", r.Method))
	}
	args = append(args, slog.String("route", r.Route))
	if r.Path != "" && r.Path != r.Route {
		args = append(args, slog.String("path", r.Path[:min(len(r.Path), maxPath)]))
	}
	args = append(args, slog.Int("status", r.Status), millis(r.Duration))
	if r.In >= 0 {
		args = append(args, slog.Int("bytes_in", r.In))
	}
	if r.Out >= 0 {
		args = append(args, slog.Int("bytes_out", r.Out))
	}
	d.put("request\x00"+r.Method+r.Route, "request", d.traced(args, r.Trace, false))
}

// Frames returns the function that logs the ending of each frame of a model, for workers.Hooks.Ended.
func (d *DebugLog) Frames(m *stream.Model) func(*stream.Request) {
	key := "frame\x00" + m.Name
	return func(r *stream.Request) {
		if d.On() {
			d.put(key, "frame ended", d.frame(m, r))
		}
	}
}

// frame returns the attributes of an ended frame.
func (d *DebugLog) frame(m *stream.Model, r *stream.Request) []any {
	res := r.Result()
	o := r.Stream.Options()
	args := make([]any, 0, 14)
	args = append(args, slog.String("model", m.Name), slog.String("version", m.Version))
	if o.Protocol != "" {
		args = append(args, slog.String("protocol", o.Protocol))
	}
	if o.Name != "" {
		args = append(args, slog.String("stream", o.Name))
	}
	if user := r.Account.Name(); user != "" {
		args = append(args, slog.String("user", user))
	}
	args = append(args, slog.Uint64("seq", r.Seq), slog.String("outcome", r.Outcome().String()))
	switch r.Outcome() {
	case stream.Dropped:
		args = append(args, slog.String("reason", string(res.Reason)))
	case stream.Failed:
		args = append(args, slog.String("code", string(stream.CodeOf(res.Err))), slog.Any("error", res.Err))
	}
	done := r.Timing.Done
	if done == 0 { // not in a batch
		done = stream.Now()
	}
	args = append(args, millis(done.Sub(r.Timing.Received)))
	if res.BatchSize > 0 { // not from r: the batch of an overtaken r may be writing now
		args = append(args, slog.Int("batch_rows", res.BatchSize))
	}
	return d.traced(args, r.Trace, res.Kept)
}

// traced adds the id of a trace, and the URL of its page if the trace is kept.
func (d *DebugLog) traced(args []any, id stream.TraceID, kept bool) []any {
	if id == (stream.TraceID{}) {
		return args
	}
	args = append(args, slog.String("trace", hex.EncodeToString(id[:])))
	if kept && d.link != nil {
		if url := d.link(id); url != "" {
			args = append(args, slog.String("trace_url", url))
		}
	}
	return args
}

// millis returns a duration as an attribute in milliseconds, with microseconds.
func millis(d time.Duration) slog.Attr {
	return slog.Float64("ms", float64(d.Microseconds())/1000)
}
