package graph

import (
	"slices"
	"sync"
	"sync/atomic"

	"millrace/stream"
	"millrace/workers"
)

// maxIdle is the most unused exchanges kept for each step.
const maxIdle = 256

// exchange is a stream to the model of a step, with one frame at a time. When the frame has ended, the exchange goes
// on with the frame's run.
type exchange struct {
	stream       *stream.Stream
	singleStream bool // for one stream of the graph, with the model's state of the stream
	ended        atomic.Bool
	result       atomic.Pointer[stream.Result]
	parts        atomic.Bool                    // a part of a result came that cannot be passed on
	target       atomic.Pointer[target]         // of the parts of a decoupled step
	call         atomic.Pointer[stream.Request] // the graph's request, if a Call

	mu      sync.Mutex
	waiting []partsOf // to be passed on

	// The frame's run; set before the frame is submitted.
	run  *run
	step *step
	box  int  // number of the box, of a crop
	over bool // the frame was given up; under run.mu
}

var _ stream.Continuer = (*exchange)(nil)

// Push implements stream.Sink.
func (x *exchange) Push(r *stream.Result) {
	if r.Partial {
		call, to := x.call.Load(), x.target.Load()
		if call != nil || to != nil {
			x.keepPart(call, to, r)
			return
		}
		x.parts.Store(true)
		r.Release()
		return
	}
	x.result.Store(r)
}

// Done implements stream.Sink.
func (x *exchange) Done(stream.CloseReason) { x.ended.Store(true) }

// Continue implements stream.Continuer.
func (x *exchange) Continue() {
	x.passParts()
	if r := x.result.Swap(nil); r != nil {
		x.run.answered(x, r)
	}
}

// exchanges are the unused exchanges of a step.
type exchanges struct {
	mu     sync.Mutex
	free   []*exchange
	closed bool
}

// take returns an unused exchange with a version of the model, or nil; version "" = the only version.
func (p *exchanges) take(version string) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.free) - 1; i >= 0; i-- {
		x := p.free[i]
		ended := x.ended.Load()
		if !ended && version != "" && x.stream.Model().Version != version {
			continue
		}
		p.free = slices.Delete(p.free, i, i+1)
		if !ended {
			return x
		}
	}
	return nil
}

// put keeps an exchange for a later frame. stateful means that the exchange's stream has the state of the frame.
func (p *exchanges) put(x *exchange, stateful bool) {
	if x.ended.Load() {
		return
	}
	x.run, x.step = nil, nil
	x.call.Store(nil)
	x.target.Store(nil)
	p.mu.Lock()
	keep := !stateful && !p.closed && len(p.free) < maxIdle
	if keep {
		p.free = append(p.free, x)
	}
	p.mu.Unlock()
	if !keep {
		x.stream.Close(stream.ByClient)
	}
}

func (p *exchanges) close() {
	p.mu.Lock()
	free := p.free
	p.free, p.closed = nil, true
	p.mu.Unlock()
	for _, x := range free {
		x.stream.Close(stream.ByClient)
	}
}

// open opens an exchange with a version of the model of a step. own is the graph's stream whose state the exchange
// gets, or nil.
func open(models workers.Models, s *step, version string, own *stream.Stream) (*exchange, error) {
	x := &exchange{singleStream: own != nil}
	o := stream.Options{
		Policy:  stream.Policy{Mode: stream.Every, Window: 1},
		OneShot: own == nil, OwnRefusals: true, Protocol: "graph", Version: s.set.Version,
	}
	if own != nil {
		o.Name = own.Options().Name
	}
	var err error
	x.stream, err = models.Open(s.set.Model, version, o, x)
	return x, err
}

// streamState is a graph's state of a stream.
type streamState struct {
	frames    int
	exchanges []*exchange      // by step; nil: none
	crops     []map[int64]crop // by step, then by id
}

// crop is the result of a step for an id.
type crop struct {
	outputs *cropOutputs
	frame   int // the number of the frame, and the frame's time
	at      stream.Instant
	seen    int // the number of the last frame with the id
}

// stateOf returns the kept state of the request's stream, or nil for a one-shot request.
func stateOf(r *stream.Request, p *plan) *streamState {
	if !p.keeps || r.Stream.Options().OneShot {
		return nil
	}
	k, _ := r.State().(*streamState)
	if k == nil {
		k = &streamState{exchanges: make([]*exchange, len(p.steps)), crops: make([]map[int64]crop, len(p.steps))}
		r.SetState(k, release)
	}
	k.frames++
	return k
}

// release releases the kept state of a stream. The stream's lock may be held.
func release(v any) {
	k := v.(*streamState)
	for _, x := range k.exchanges {
		if x != nil {
			x.stream.Close(stream.ByClient)
		}
	}
	for _, ids := range k.crops {
		for _, c := range ids {
			c.outputs.lease.Release()
		}
	}
}
