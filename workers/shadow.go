package workers

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/difference"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// Bounds of the copies of requests held by a shadow.
const (
	maxCopies      = 16
	maxCopiedShare = 16 // of the memory budget: 1/16
)

// shadow sends copies of answered requests to another version of their model, at low priority, and compares the
// results. A copy is made when the request has its result, and consists of references to memory, so that the request
// never waits. While maxCopies copies wait for comparison, no request is copied.
type shadow struct {
	Shadow
	to       *Group
	maxBytes int64

	seen    atomic.Uint64 // answered requests
	copies  chan *copied
	results chan *stream.Result
	stopped chan struct{}

	mu    sync.Mutex
	bytes int64 // of all copies not yet compared
	n     int   // of these copies
	ended bool
}

// copied is a request and the result.
type copied struct {
	frame   stream.Frame
	outputs []stream.Tensor
	lease   *buf.Buf // of outputs
	size    int64
}

// shadowCounts are the comparisons of a shadow's results.
type shadowCounts struct {
	equal, different, failed, skipped atomic.Uint64
	difference                        atomic.Uint64 // bits of a float64; only the shadow's goroutine writes
}

// ShadowStats are the comparisons of a version as a shadow.
type ShadowStats struct {
	Equal, Different uint64  // results
	Failed           uint64  // the shadow failed, but the other version answered
	Skipped          uint64  // sampled requests not compared, because too many copies waited
	Difference       float64 // sum, over the compared results, of the mean absolute difference of their numbers
}

func (c *shadowCounts) read() ShadowStats {
	return ShadowStats{
		Equal: c.equal.Load(), Different: c.different.Load(), Failed: c.failed.Load(), Skipped: c.skipped.Load(),
		Difference: math.Float64frombits(c.difference.Load()),
	}
}

// shadowed reports whether g gets only copies, unless a request names the version of g.
func (e *endpoint) shadowed(g *Group) bool {
	return e.shadowing.Version != "" && e.shadowing.Version == g.cfg.Version
}

// startShadow starts the shadow of the endpoint, or goes on with the shadow of old, which may be nil.
func (e *endpoint) startShadow(m *Manager, old *endpoint) {
	e.shadow = nil
	if to := e.version(e.shadowing.Version); to != nil && len(e.groups) > 1 {
		if old != nil && old.shadow != nil && old.shadow.to == to && old.shadow.Shadow == e.shadowing {
			e.shadow = old.shadow
		} else if s, err := newShadow(e.shadowing, to, m.opts.Memory.Stats().Budget); err == nil {
			e.shadow = s
			m.shadows.Go(s.run)
		} else {
			m.opts.Log.Error("a shadow gets no requests", "model", e.name, "version", to.cfg.Version, "error", err)
		}
	}
	for _, g := range e.groups {
		if e.shadowed(g) {
			g.shadow.Store(nil)
		} else {
			g.shadow.Store(e.shadow)
		}
	}
}

// stopShadow stops the shadow unless next has the same shadow.
func (e *endpoint) stopShadow(next *endpoint) {
	if s := e.shadow; s != nil && (next == nil || next.shadow != s) {
		s.mu.Lock()
		if !s.ended {
			s.ended = true
			close(s.stopped)
		}
		s.mu.Unlock()
	}
}

func newShadow(cfg Shadow, to *Group, budget int64) (*shadow, error) {
	s := &shadow{
		Shadow: cfg, to: to, maxBytes: budget / maxCopiedShare,
		copies: make(chan *copied, maxCopies), results: make(chan *stream.Result, maxCopies),
		stopped: make(chan struct{}),
	}
	if budget <= 0 {
		s.maxBytes = math.MaxInt64
	}
	return s, nil
}

// copy copies a sampled, ended request. The request's stream is locked.
func (s *shadow) copy(r *stream.Request) {
	res := r.Result()
	// other requests have no input any more, were not run, or must not be repeated
	if res.Outcome != stream.Answered || r.Cached || r.Rows == 0 || r.Call != nil {
		return
	}
	n := s.seen.Add(1)
	if math.Floor(float64(n)*s.Sample) == math.Floor(float64(n-1)*s.Sample) {
		return
	}
	c := &copied{size: int64(len(r.Payload))}
	for _, list := range [][]stream.Tensor{r.Inputs, res.Outputs} {
		for i := range list {
			c.size += int64(len(list[i].Data))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.n >= maxCopies || s.bytes+c.size > s.maxBytes {
		s.to.totals.shadow.skipped.Add(1)
		return
	}
	s.n++
	s.bytes += c.size
	c.frame, c.outputs, c.lease = r.Frame, slices.Clone(res.Outputs), res.Lease
	f := &c.frame
	f.Account = nil // decoding the copy is not counted for the client
	f.Seq, f.Deadline, f.TraceContext, f.Arrived = n, 0, stream.TraceContext{}, 0
	// the copy has the priority of the shadow's stream
	f.Priority, f.QueueTimeout, f.Must = stream.DefaultPriority, 0, false
	f.Inputs = slices.Clone(f.Inputs)
	if f.Lease == nil { // the lease became the result's lease
		f.Lease = c.lease
	}
	retain(f.Lease)
	retain(c.lease)
	s.copies <- c // has room for maxCopies
}

func retain(l *buf.Buf) {
	if l != nil {
		l.Retain()
	}
}

// done releases the memory of c.
func (s *shadow) done(c *copied) {
	c.lease.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	s.bytes -= c.size
}

// Push implements stream.Sink. The channel has room for the result of each copy.
func (s *shadow) Push(r *stream.Result) {
	if r.Partial {
		r.Release()
		return
	}
	s.results <- r
}

// Done implements stream.Sink.
func (*shadow) Done(stream.CloseReason) {}

// run submits copies and compares their results, until the shadow is stopped and all
// copies have ended.
func (s *shadow) run() {
	counts := &s.to.totals.shadow
	waiting := map[uint64]*copied{}
	var to *stream.Stream
	stopped := s.stopped
	for stopped != nil || len(waiting) > 0 {
		copies := s.copies
		if stopped == nil {
			copies = nil
		}
		select {
		case c := <-copies:
			var err error
			if to == nil {
				to, err = s.to.Open(stream.Options{
					Policy:  stream.Policy{Mode: stream.Every, Window: maxCopies, Priority: stream.Low},
					OneShot: true, OwnRefusals: true, Protocol: "shadow",
				}, s)
			}
			waiting[c.frame.Seq] = c // the result may come at once
			if err == nil {
				err = to.Submit(c.frame)
			} else {
				c.frame.Lease.Release()
			}
			if err != nil {
				delete(waiting, c.frame.Seq)
				counts.failed.Add(1)
				s.done(c)
				if to != nil { // the stream has ended: another stream is opened for the next copy
					to.Close(stream.ByClient)
					to = nil
				}
			}
		case r := <-s.results:
			if c := waiting[r.Seq]; c != nil {
				delete(waiting, r.Seq)
				s.compare(counts, c, r)
				s.done(c)
			}
			r.Release()
		case <-stopped:
			stopped = nil
			if to != nil {
				to.Close(stream.ByClient)
			}
		}
	}
	for {
		select {
		case c := <-s.copies:
			c.frame.Lease.Release()
			s.done(c)
		default:
			return
		}
	}
}

// compare counts the difference between the results of a request and of the request's copy.
func (s *shadow) compare(counts *shadowCounts, c *copied, r *stream.Result) {
	switch r.Outcome {
	case stream.Dropped:
		counts.skipped.Add(1)
		return
	case stream.Failed:
		counts.failed.Add(1)
		return
	}
	var d difference.Summary
	d.Add(tensorsOf(c.outputs), tensorsOf(r.Outputs), true, difference.Options{IoU: s.IoU, Tolerance: s.Tolerance})
	d.Finish()
	if d.Agree == 1 {
		counts.equal.Add(1)
	} else {
		counts.different.Add(1)
	}
	mean := 0.0
	for _, t := range d.Tensors {
		mean += t.Mean / float64(len(d.Tensors))
	}
	counts.difference.Store(math.Float64bits(math.Float64frombits(counts.difference.Load()) + mean))
}

func tensorsOf(list []stream.Tensor) []oip.Tensor {
	out := make([]oip.Tensor, len(list))
	for i, t := range list {
		out[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return out
}
