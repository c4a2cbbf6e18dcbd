//go:build !notracing

package export

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"millrace/internal/backoff"
	"millrace/internal/routines"
	"millrace/internal/setting"
)

// Reason says why spans were lost.
type Reason string

// The reasons.
const (
	QueueFull Reason = "queue_full" // the queue was at tracing.queue_size
	Refused   Reason = "refused"    // the collector answered that it does not take them
	Failed    Reason = "failed"     // they could not be delivered
	TooLarge  Reason = "too_large"  // one alone is larger than a packet or than what the collector takes
	Closed    Reason = "closed"     // the server stopped before they were sent
)

// Reasons are all reasons, in the order in which they are shown.
var Reasons = []Reason{QueueFull, Refused, Failed, TooLarge, Closed}

// advice says for each reason what an operator can do.
var advice = map[Reason]string{
	QueueFull: "sample fewer frames with tracing.ratio, raise tracing.queue_size, or give the collector more resources",
	Refused:   "read the log of the collector, and check tracing.endpoint, tracing.exporter and tracing.headers",
	Failed:    "check that a collector runs at tracing.endpoint and can be reached from here",
	TooLarge:  "raise tracing.packet_size or the largest message that the collector takes",
	Closed:    "raise drain, or check that the collector answers",
}

// Stats counts spans since the start. Exported, all of Lost and Waiting add up to the
// spans that Enqueue got.
type Stats struct {
	Exported uint64
	Lost     map[Reason]uint64 // every one of Reasons
	Waiting  int               // queued or being sent
	Capacity int               // tracing.queue_size
}

// Exporter sends spans to a collector. It is safe for concurrent use.
type Exporter struct {
	cfg      Config
	endpoint string // for messages
	log      *slog.Logger
	sender   sender
	ctx      context.Context // of sending; ends when Close gives up
	cancel   context.CancelFunc
	work     chan struct{} // of 1: the queue has a batch, or its first span
	closing  chan struct{} // closed by Close
	ended    chan struct{} // closed when nothing is sent any more

	mu       sync.Mutex
	queue    []sdktrace.ReadOnlySpan
	sending  int // spans taken from queue that have neither been exported nor lost
	exported uint64
	lost     map[Reason]uint64
	closed   bool

	// Of the goroutine that sends:
	backoff  backoff.Backoff
	failing  bool   // the newest attempt failed
	reported uint64 // spans that were lost at the newest message
}

// sender sends batches of spans of one resource, one batch after the other. An error that
// is a *failure says what became of the spans; after others all of them are lost as Failed.
type sender = sdktrace.SpanExporter

// failure is the outcome of a batch that was not exported completely.
type failure struct {
	err error
	// reason is that of all spans of the batch; if lost is set, that of most in it.
	reason Reason
	// retry says that no span was taken and that the batch may be sent again, after a wait of
	// at least after.
	retry bool
	after time.Duration
	// split says that no span was taken, and that fewer may be.
	split bool
	// lost counts the lost spans of a batch of which others were exported.
	lost map[Reason]int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// New returns an exporter, or nil if cfg has none. It connects in the background: a
// collector that does not answer is no error. log should be limited, as that of
// tracing.LimitedLogger is; each message about lost spans has the counts since the start.
func New(cfg Config, log *slog.Logger) (*Exporter, error) {
	setting.Fill(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if !cfg.On() {
		return nil, nil
	}
	s, err := newSender(cfg)
	if err != nil {
		return nil, err
	}
	return start(cfg, s, log), nil
}

func start(cfg Config, s sender, log *slog.Logger) *Exporter {
	e := &Exporter{cfg: cfg, log: log, sender: s, work: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}), lost: map[Reason]uint64{}}
	if u, err := cfg.endpoint(); err == nil && u != nil {
		e.endpoint = withoutQuery(u)
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	routines.New(func(name string, v any, stack []byte) {
		log.Error("a goroutine panicked", "goroutine", name, "panic", v, "stack", string(stack))
	}).Go("trace exporter", e.run, nil)
	return e
}

// Enqueue hands over the spans of a frame; the caller keeps the slice. It never blocks: if
// there is no room for all of them, all are lost. On a nil Exporter it does nothing.
func (e *Exporter) Enqueue(spans []sdktrace.ReadOnlySpan) {
	if e == nil || len(spans) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := len(e.queue) + e.sending
	switch {
	case e.closed:
		e.lost[Closed] += uint64(len(spans))
		return
	case waiting+len(spans) > e.cfg.QueueSize:
		e.lost[QueueFull] += uint64(len(spans))
		return
	}
	before := len(e.queue)
	e.queue = append(e.queue, spans...)
	if before == 0 || before < e.cfg.BatchSize && len(e.queue) >= e.cfg.BatchSize {
		e.wake()
	}
}

func (e *Exporter) wake() {
	select {
	case e.work <- struct{}{}:
	default:
	}
}

// Stats returns the counts. On a nil Exporter they are zero.
func (e *Exporter) Stats() Stats {
	s := Stats{Lost: make(map[Reason]uint64, len(Reasons))}
	for _, r := range Reasons {
		s.Lost[r] = 0
	}
	if e == nil {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Exported, s.Waiting, s.Capacity = e.exported, len(e.queue)+e.sending, e.cfg.QueueSize
	for r, n := range e.lost {
		s.Lost[r] = n
	}
	return s
}

// Close sends what waits, each batch once, until ctx ends. What is left is lost as Closed,
// and so is what Enqueue gets later. A second Close does nothing.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	e.mu.Unlock()
	if !first {
		return nil
	}
	close(e.closing)
	select {
	case <-e.ended:
	case <-ctx.Done():
		e.cancel()
		select {
		case <-e.ended:
		case <-time.After(time.Second): // a write to standard output cannot be cancelled
			return fmt.Errorf("the exporter of traces did not stop: %w", ctx.Err())
		}
	}
	e.cancel()
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return e.sender.Shutdown(shutdown)
}

// run sends batches until the exporter is closed and the queue is empty.
func (e *Exporter) run() {
	defer close(e.ended)
	for {
		batch, ended := e.next()
		if ended {
			return
		}
		if len(batch) > 0 {
			e.deliver(batch)
		}
	}
}

// next waits for a batch and takes it. It may return an empty one.
func (e *Exporter) next() (batch []sdktrace.ReadOnlySpan, ended bool) {
	e.mu.Lock()
	waiting := len(e.queue)
	e.mu.Unlock()
	closing := e.isClosing()
	switch {
	case closing && waiting == 0:
		return nil, true
	case closing:
	case waiting == 0:
		select {
		case <-e.work:
		case <-e.closing:
		}
		return nil, false
	case waiting < e.cfg.BatchSize:
		timer := time.NewTimer(e.cfg.Delay)
		defer timer.Stop()
		for full := false; !full; {
			select {
			case <-timer.C:
				full = true
			case <-e.closing:
				full = true
			case <-e.work:
				e.mu.Lock()
				full = len(e.queue) >= e.cfg.BatchSize
				e.mu.Unlock()
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.queue) && n < e.cfg.BatchSize && sameResource(e.queue[0].Resource(), e.queue[n].Resource()) {
		n++
	}
	batch = append(batch, e.queue[:n]...)
	rest := copy(e.queue, e.queue[n:])
	clear(e.queue[rest:])
	e.queue = e.queue[:rest]
	e.sending = n
	return batch, false
}

func sameResource(a, b *resource.Resource) bool { return a == b || a.Equal(b) }

func (e *Exporter) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// deliver sends a batch until it is exported or lost.
func (e *Exporter) deliver(batch []sdktrace.ReadOnlySpan) {
	began := time.Now()
	for {
		if e.ctx.Err() != nil {
			e.count(len(batch), &failure{err: e.ctx.Err(), reason: Closed})
			return
		}
		f := e.attempt(batch)
		if f == nil {
			e.count(len(batch), nil)
			e.backoff.Reset()
			return
		}
		if f.split && len(batch) > 1 {
			half := len(batch) / 2
			e.deliver(batch[:half])
			e.deliver(batch[half:])
			return
		}
		if f.retry && !e.isClosing() {
			wait := max(e.backoff.Next(rand.Float64()), f.after)
			if time.Since(began)+wait <= e.cfg.Retry {
				e.logRetry(f.err)
				e.wait(wait)
				continue
			}
		}
		if e.ctx.Err() != nil { // Close has ended the attempt
			f = &failure{err: f.err, reason: Closed}
		}
		e.count(len(batch), f)
		return
	}
}

// wait waits, or returns when the exporter is closed.
func (e *Exporter) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.closing:
	}
}

// attempt sends a batch once. It returns nil when the collector has taken all of it.
func (e *Exporter) attempt(batch []sdktrace.ReadOnlySpan) (f *failure) {
	defer func() {
		if v := recover(); v != nil {
			f = &failure{err: fmt.Errorf("panic: %v\n%s", v, debug.Stack()), reason: Failed}
		}
	}()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.Timeout)
	defer cancel()
	return asFailure(ctx, e.sender.ExportSpans(ctx, batch))
}

// count counts a batch of n spans that was exported, but for what f says.
func (e *Exporter) count(n int, f *failure) {
	var lost map[Reason]int
	if f != nil {
		if lost = f.lost; lost == nil {
			lost = map[Reason]int{f.reason: n}
		}
	}
	e.mu.Lock()
	exported := n
	for r, k := range lost {
		k = min(k, exported)
		exported -= k
		e.lost[r] += uint64(k)
	}
	e.exported += uint64(exported)
	e.sending -= n
	e.mu.Unlock()
	e.logLost(f)
}

// logLost writes a message when more spans are lost than at the newest one, and one when
// the collector takes spans again.
func (e *Exporter) logLost(f *failure) {
	stats := e.Stats()
	total := uint64(0)
	args := []any{"exporter", e.cfg.Exporter, "endpoint", e.endpoint, "exported", stats.Exported}
	for _, r := range Reasons {
		if n := stats.Lost[r]; n > 0 {
			total += n
			args = append(args, string(r), n)
		}
	}
	if total > e.reported {
		e.reported = total
		reason := QueueFull
		if f != nil {
			reason = f.reason
			args = append(args, "error", f.err)
		}
		e.log.Warn("spans were lost", append(args, "advice", advice[reason])...)
	}
	if f == nil && e.failing {
		e.log.Info("spans are exported again", "exporter", e.cfg.Exporter, "endpoint", e.endpoint)
	}
	e.failing = f != nil
}

// logRetry writes that spans wait because the collector does not take them.
func (e *Exporter) logRetry(err error) {
	e.failing = true
	e.log.Warn("the collector of traces does not take spans; they wait", "exporter", e.cfg.Exporter, "endpoint", e.endpoint,
		"error", err, "advice", advice[Failed])
}
