//go:build !notracing

package spans

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"millrace/stream"
	"millrace/tracing/export"
	"millrace/workers"
)

// Exporter takes finished spans; package tracing/export implements Exporter. Enqueue must not block.
type Exporter interface {
	Enqueue(spans []sdktrace.ReadOnlySpan)
}

// Options configure a Tracer.
type Options struct {
	Config   Config
	Exporter Exporter           // nil: spans are only shown
	Resource *resource.Resource // of every span
	Remote   sdktrace.Sampler   // of the sampler jaeger-remote
}

// queueLen is the most ended frames and batches that wait for their spans to be built.
const queueLen = 1024

// Tracer keeps traces. A Tracer has one goroutine, which builds the spans. The methods are safe for concurrent use.
type Tracer struct {
	o       Options
	cfg     Config
	sampler *sampler
	tail    tail
	jobs    chan job
	shown   keptRings
	unbuilt unbuiltTraces
	kept    [len(rules)]atomic.Uint64
	lost    atomic.Uint64

	exported *export.Exporter // nil: none
	end      func()           // after the goroutine has ended; or nil

	stop chan struct{}
	once sync.Once
	done chan struct{}
}

// job is what is ready for building spans: one of the fields is set.
type job struct {
	frame   *record
	task    *taskRun
	batch   *batchRun
	refused *refusal
}

// New returns a tracer with a goroutine until Close.
func New(o Options) *Tracer {
	t := &Tracer{o: o, cfg: o.Config.filled(), jobs: make(chan job, queueLen), stop: make(chan struct{}),
		done: make(chan struct{})}
	t.sampler = newSampler(&t.cfg, o.Remote)
	t.tail.set(&t.cfg)
	t.shown.size = *t.cfg.Shown
	t.fill()
	go t.run() // ends with Close
	return t
}

// Close builds the spans of the waiting frames, passes the spans to the exporter, and closes the exporter.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		close(t.stop)
		<-t.done
		if t.end != nil {
			t.end()
		}
	})
}

// Ratio returns the present share of frames with kept traces.
func (t *Tracer) Ratio() float64 {
	if t == nil {
		return 0
	}
	return math.Float64frombits(t.sampler.ratio.Load())
}

// ConfiguredRatio returns the configured share.
func (t *Tracer) ConfiguredRatio() float64 {
	if t == nil {
		return 0
	}
	return *t.cfg.Ratio
}

// SetRatio changes the share of frames with kept traces, for samplers with a ratio.
func (t *Tracer) SetRatio(ratio float64) error {
	switch {
	case t != nil && (t.sampler.kind == "parent" || t.sampler.kind == "ratio"):
		t.sampler.setRatio(ratio)
		return nil
	case t == nil:
		return stream.Errorf(stream.Unsupported, "trace_rate", "cannot be set: traces are turned off")
	}
	return stream.Errorf(stream.Unsupported, "trace_rate", "cannot be set: tracing.sampler is %s, which has no ratio",
		t.sampler.kind)
}

// fill lets the rules keep frames for another second.
func (t *Tracer) fill() {
	t.sampler.fill()
	t.tail.fill()
}

func (t *Tracer) run() {
	defer close(t.done)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case j := <-t.jobs:
			t.build(j)
		case <-second.C:
			t.fill()
		case <-t.stop:
			for {
				select {
				case j := <-t.jobs:
					t.build(j)
				default:
					return
				}
			}
		}
	}
}

// enqueue passes a job to the goroutine without blocking.
func (t *Tracer) enqueue(j job) {
	select {
	case t.jobs <- j:
	default:
		t.lost.Add(1)
		t.settle(j)
	}
}

// settle is called for each job when built or lost.
func (t *Tracer) settle(j job) {
	switch {
	case j.frame != nil:
		t.unbuilt.remove(j.frame.r.Trace)
	case j.task != nil:
		t.unbuilt.remove(j.task.Trace)
	case j.refused != nil:
		t.unbuilt.remove(j.refused.result.Trace)
	}
}

// Stats returns the totals.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	st := Stats{Kept: map[string]uint64{}, Over: map[string]uint64{}, Lost: t.lost.Load()}
	for i, name := range rules {
		st.Kept[name] = t.kept[i].Load()
	}
	for i, a := range [...]*allowance{&t.sampler.perSecond, &t.tail.slow, &t.tail.dropped, &t.tail.failed,
		&t.tail.gated} {
		st.Over[rules[i]] = a.over.Load()
	}
	if t.exported != nil {
		e := t.exported.Stats()
		st.Exported, st.Waiting, st.LostSpans = e.Exported, e.Waiting, map[string]uint64{}
		for why, n := range e.Lost {
			st.LostSpans[string(why)] = n
		}
	}
	return st
}

// Model returns the hooks of a group that serves m. The hooks set Result.Kept, and must be called before hooks that
// read Kept.
func (t *Tracer) Model(m *stream.Model) workers.Hooks {
	if t == nil {
		return workers.Hooks{}
	}
	tm := &model{t: t, model: m}
	tm.attributes = modelAttributes(m)
	m.Counts.OnRefused(tm.refused)
	return workers.Hooks{Ended: tm.ended, Run: tm.run}
}

// model is the tracing of one group.
type model struct {
	t          *Tracer
	model      *stream.Model
	attributes []attribute.KeyValue // of the root spans
}

// ended is called for each ended frame, with its stream's lock held.
func (m *model) ended(r *stream.Request) {
	w := m.t.tail.keeps(r)
	name := ""
	if m.t.sampler.remote != nil { // the remote sampler decides by name
		o := r.Stream.Options()
		name = m.name(&o)
	}
	if m.t.sampler.keeps(&r.TraceContext, name) {
		w |= sampled
	}
	if w == 0 {
		return
	}
	m.keep(r, w)
}

func (m *model) keep(r *stream.Request, w why) {
	res := r.Result()
	res.Kept = true
	rec := &record{m: m, r: r, why: w, ended: r.Timing.Done}
	if rec.ended == 0 { // ended outside a run, without reading the clock
		rec.ended = stream.Now()
	}
	for i := range res.Outputs {
		rec.bytes += len(res.Outputs[i].Data)
	}
	m.t.count(w)
	m.t.unbuilt.add(r.Trace)
	r.Watch(rec)
}

func (t *Tracer) count(w why) {
	for i := range rules {
		if w&(1<<i) != 0 {
			t.kept[i].Add(1)
		}
	}
}

// refused is called for each frame not accepted by a stream.
func (m *model) refused(x *stream.Refusal) {
	w := m.t.tail.ended(x.Result.Outcome)
	if m.t.sampler.keeps(&x.Frame.TraceContext, m.name(x.Options)) {
		w |= sampled
	}
	if w == 0 {
		return
	}
	x.Result.Kept = true
	m.t.count(w)
	k := &refusal{m: m, frame: x.Frame, options: *x.Options, result: *x.Result, at: x.At, why: w}
	k.frame.Payload, k.frame.Inputs, k.frame.Params, k.frame.Lease = nil, nil, nil, nil
	m.t.unbuilt.add(k.result.Trace)
	m.t.enqueue(job{refused: k})
}

// run is called after each batch, before its requests are unbound.
func (m *model) run(b workers.BatchRun) {
	var run *batchRun
	for _, r := range b.Batch.Requests {
		rec, _ := r.Watcher().(*record)
		if rec == nil {
			continue
		}
		if run == nil {
			run = newBatchRun(m, b)
		}
		rec.batch = run
	}
	if run != nil {
		m.t.enqueue(job{batch: run})
	}
}
