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
	Refused   Reason = "refused"    // the collector refused the spans
	Failed    Reason = "failed"     // delivery failed
	TooLarge  Reason = "too_large"  // a single span exceeds a packet or the collector's limit
	Closed    Reason = "closed"     // the server stopped before sending the spans
)

// Reasons are all reasons, in order of presentation.
var Reasons = []Reason{QueueFull, Refused, Failed, TooLarge, Closed}

// advice has an operator's remedy for each reason.
var advice = map[Reason]string{
	QueueFull: "sample fewer frames with tracing.ratio, raise tracing.queue_size, or give the collector more resources",
	Refused:   "read the log of the collector, and check tracing.endpoint, tracing.exporter and tracing.headers",
	Failed:    "check that a collector runs at tracing.endpoint and can be reached from here",
	TooLarge:  "raise tracing.packet_size or the largest message that the collector takes",
	Closed:    "raise drain, or check that the collector answers",
}

// Stats counts spans since the start. The sum of Exported, all of Lost, and Waiting is the number of spans passed to
// Enqueue.
type Stats struct {
	Exported uint64
	Lost     map[Reason]uint64 // has every Reason
	Waiting  int               // queued or being sent
	Capacity int               // tracing.queue_size
}

// Exporter sends spans to a collector. An Exporter is safe for concurrent use.
type Exporter struct {
	cfg      Config
	endpoint string // for messages
	log      *slog.Logger
	sender   sender
	ctx      context.Context // of sending; ends when Close gives up
	cancel   context.CancelFunc
	work     chan struct{} // capacity 1: the queue has a batch, or its first span
	closing  chan struct{} // closed by Close
	ended    chan struct{} // closed when nothing is sent any more

	mu       sync.Mutex
	queue    []sdktrace.ReadOnlySpan
	sending  int // spans taken from queue but neither exported nor lost yet
	exported uint64
	lost     map[Reason]uint64
	closed   bool

	// Of the sending goroutine:
	backoff  backoff.Backoff
	failing  bool   // the newest attempt failed
	reported uint64 // lost spans at the newest message
}

// sender sends batches of spans of one resource, one batch after the other. An error of type *failure tells the fate
// of the spans; after any other error, all spans are lost as Failed.
type sender = sdktrace.SpanExporter

// failure is the outcome of an incompletely exported batch.
type failure struct {
	err error
	// reason applies to all spans of the batch or, if lost is set, to most.
	reason Reason
	// retry means that no span was taken and the batch may be sent again after a wait of at least after.
	retry bool
	after time.Duration
	// split means that no span was taken, and fewer spans may be accepted.
	split bool
	// lost counts the lost spans of a partly exported batch.
	lost map[Reason]int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// New returns an exporter, or nil if cfg has no exporter. The exporter connects in the background: an unreachable
// collector is no error. log should be limited, for example by tracing.LimitedLogger; each message about lost spans
// has the counts since the start.
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
	e := &Exporter{cfg: cfg, log: log, sender: s, work: make(chan struct{}, 1), closing: make(chan struct{}),
		ended: make(chan struct{}), lost: map[Reason]uint64{}}
	if u, err := cfg.endpoint(); err == nil && u != nil {
		e.endpoint = withoutQuery(u)
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	routines.New(func(name string, v any, stack []byte) {
		log.Error("a goroutine panicked", "goroutine", name, "panic", v, "stack", string(stack))
	}).Go("trace exporter", e.run, nil)
	return e
}

// Enqueue queues the spans of a frame; the caller keeps the slice. Enqueue never blocks: without room for all spans,
// all spans are lost. On a nil Exporter, Enqueue does nothing.
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

// Stats returns the counts; all are zero for a nil Exporter.
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

// Close sends the waiting spans, each batch once, until ctx ends. Remaining spans are lost as Closed, and so are
// spans enqueued later. A second Close does nothing.
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

// next waits for a batch and takes the batch, which may be empty.
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

// deliver sends a batch until exported or lost.
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

// attempt sends a batch once. attempt returns nil when the collector has taken the whole batch.
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

// count counts an exported batch of n spans, except for the lost spans of f.
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

// logLost logs new losses since the newest message, and the collector's recovery.
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

// logRetry logs that spans wait because the collector does not take spans.
func (e *Exporter) logRetry(err error) {
	e.failing = true
	e.log.Warn("the collector of traces does not take spans; they wait", "exporter", e.cfg.Exporter, "endpoint",
		e.endpoint,
		"error", err, "advice", advice[Failed])
}
