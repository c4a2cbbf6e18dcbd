package stream

import (
	"time"

	"millrace/stream/buf"
)

// Bounds for partial results of a request behind an unfinished request of the same stream.
const (
	// MaxEarly is the largest number of partial results waiting for the request's turn. A worker that emits more
	// waits.
	MaxEarly = 64
	// maxEarlyWait bounds the worker's wait, for all partial results of a request together. The bound is below the
	// time limit of a run, so that the worker does not count as hung.
	maxEarlyWait = 10 * time.Second
)

// earlyResults holds the partial results emitted before the request's turn. Guarded by the stream's lock.
type earlyResults struct {
	results []*Result
	waited  time.Duration // by the worker
	room    chan struct{} // closed when the worker need not wait any longer; nil = no worker waits
}

func (e *earlyResults) wake() {
	if e != nil && e.room != nil {
		close(e.room)
		e.room = nil
	}
}

// Emit sends a part of the result before the ending. Emit takes over lease. When the request has ended, Emit releases
// lease and returns false.
//
// Emit waits while the sink bounds the results waiting for the client (see Pacer). Before the request's turn, Emit
// waits when MaxEarly partial results are waiting, for 10 s in sum; then the request fails with FlowControl. The
// request fails at once when the same batch contains an earlier unfinished request: waiting would be a deadlock.
func (r *Request) Emit(outputs []Tensor, lease *buf.Buf) bool {
	if err := r.WaitForRoom(); err != nil {
		r.Fail(err)
	}
	return r.Pass(outputs, lease)
}

// WaitForRoom waits as Emit does, and returns an error where Emit would let the request fail.
func (r *Request) WaitForRoom() error {
	s := r.Stream
	inTurn, err := s.waitForTurn(r)
	if p, ok := s.sink.(Pacer); ok && inTurn {
		err = p.WaitForRoom()
	}
	return err
}

// Pass is Emit without waiting, for a worker that has called WaitForRoom and must not wait.
func (r *Request) Pass(outputs []Tensor, lease *buf.Buf) bool {
	return r.Stream.emit(r, &Result{
		Partial: true, Outcome: Answered, Outputs: append([]Tensor(nil), outputs...), Lease: lease,
	})
}

// waitForTurn waits for the turn of r (inTurn is true), or for room for another partial result before the turn.
func (s *Stream) waitForTurn(r *Request) (inTurn bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.Outcome() == Pending && s.order[0] != r {
		e := r.early
		if e == nil || len(e.results) < MaxEarly {
			return false, nil
		}
		left := maxEarlyWait - e.waited
		if left <= 0 || s.sharesBatch(r) {
			return false, Errorf(FlowControl, "", "an older frame of the stream has no ending, and %d partial "+
				"results of this one wait for it: send fewer frames at once, or use a stream for each", MaxEarly)
		}
		e.room = make(chan struct{})
		room := e.room
		s.mu.Unlock()
		began, limit := time.Now(), time.NewTimer(left)
		select {
		case <-room:
		case <-limit.C:
		}
		limit.Stop()
		s.mu.Lock()
		e.waited += time.Since(began)
	}
	return r.Outcome() == Pending, nil
}

// sharesBatch reports whether the same batch contains an earlier unfinished request.
func (s *Stream) sharesBatch(r *Request) bool {
	for _, o := range s.order {
		if o == r {
			return false
		}
		if o.bound && o.Outcome() == Pending && o.gathered == r.gathered {
			return true
		}
	}
	return false
}

func (s *Stream) emit(r *Request, p *Result) bool {
	s.mu.Lock()
	defer s.unlock()
	if r.Outcome() != Pending {
		p.Lease.Release()
		return false
	}
	r.result.key = nil // the ending alone is not the whole result
	p.Seq, p.CaptureUS, p.Model, p.Timing, p.Reply = r.Seq, r.CaptureUS, r.result.Model, r.Timing, r.result.Reply
	if s.order[0] == r {
		s.flushEarly(r)
		s.pushed = true
		s.sink.Push(p)
		return true
	}
	if r.early == nil {
		r.early = &earlyResults{}
	}
	r.early.results = append(r.early.results, p)
	return true
}

// flushEarly pushes the early partial results of r when the turn of r has come.
func (s *Stream) flushEarly(r *Request) {
	e := r.early
	if e == nil {
		return
	}
	for _, p := range e.results {
		s.pushed = true
		s.sink.Push(p)
	}
	e.results = nil
	e.wake()
}
