package ingest

import (
	"context"
	"sync"
	"time"

	"millrace/stream"
)

// Bounds of a request's partial results.
const (
	// maxParts is the number of partial results queued for the caller; with a full queue the worker waits.
	maxParts = 64
	// maxPartsWait is the worker's longest wait for the caller, over all partial results of a request. maxPartsWait
	// is less than the time limit of a run (limits.run), so that a slow caller does not look like a hung worker.
	maxPartsWait = 10 * time.Second
)

// InferStream is Infer for requests with several answers: InferStream calls each with every partial result, in order
// and in the caller's goroutine, and then returns the ending, as Infer does. A partial result is released when each
// returns. An error of each ends the request with the same error.
//
// A worker more than 64 partial results ahead of each waits, for 10 s in sum; then the request ends with FlowControl.
func (o *OneShot) InferStream(ctx context.Context, client *Client, model, version string, f stream.Frame,
	each func(*stream.Result) error) (*stream.Result, error) {
	if err := client.Charge(model, &f); err != nil {
		r := o.Refuse(client, model, version, &f, err)
		f.Lease.Release()
		return r, err
	}
	p := &parts{news: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{})}
	chosen := version
	if version == "" {
		chosen = o.backend.Models().Choose(model)
	}
	s, err := o.backend.Open(model, chosen, stream.Options{
		Policy:  stream.Policy{Mode: stream.Every, Window: 1},
		OneShot: true, OwnRefusals: true, Protocol: o.protocol, Version: version,
	}, p)
	if err != nil {
		o.Refuse(client, model, version, &f, err)
		f.Lease.Release()
		return nil, err
	}
	defer s.Close(stream.ByClient)
	if err := s.Submit(f); err != nil {
		s.Refuse(&f, "", err)
		return nil, err
	}
	abandon := func(err error) {
		close(p.gone)
		s.Abandon(err)
		each = nil
	}
	done := ctx.Done()
	var failed error // of each
	for {
		select {
		case <-p.news:
		case <-done:
			done = nil
			cause := context.Cause(ctx)
			abandon(stream.Errorf(stream.CodeOf(cause), "", "the call ended before its result: %w", cause))
		}
		for r := p.next(); r != nil; r = p.next() {
			if !r.Partial {
				if failed != nil {
					if r.Outcome == stream.Answered { // before each has failed
						r.CountUnsendable(failed)
					}
					r.Release()
					return r, failed
				}
				return ending(r)
			}
			if each == nil {
				r.Release()
				continue
			}
			failed = each(r)
			r.Release()
			if failed != nil {
				done = nil
				abandon(failed)
			}
		}
	}
}

// ending returns the result of a request, or the error.
func ending(r *stream.Result) (*stream.Result, error) {
	switch r.Outcome {
	case stream.Failed:
		r.Release()
		return r, r.Err
	case stream.Dropped:
		r.Release()
		if r.Err != nil { // more specific than the reason
			return r, r.Err
		}
		return r, DropError(r.Reason)
	}
	r.Remember()
	return r, nil
}

// parts is the sink of a request with several answers.
type parts struct {
	news chan struct{} // capacity 1: waiting is not empty
	room chan struct{} // capacity 1: an entry was removed from waiting
	gone chan struct{} // closed when the caller takes no more

	mu      sync.Mutex
	waiting []*stream.Result
	waited  time.Duration // by the worker
}

var _ stream.Pacer = (*parts)(nil)

// Push implements stream.Sink.
func (p *parts) Push(r *stream.Result) {
	p.mu.Lock()
	p.waiting = append(p.waiting, r)
	p.mu.Unlock()
	signal(p.news)
}

// Done implements stream.Sink.
func (p *parts) Done(stream.CloseReason) {}

// next returns the oldest waiting result, or nil.
func (p *parts) next() *stream.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	r := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	signal(p.room)
	return r
}

// WaitForRoom implements stream.Pacer. After the caller has left, WaitForRoom returns nil at once: the stream refuses
// further results.
func (p *parts) WaitForRoom() error {
	for {
		p.mu.Lock()
		full, left := len(p.waiting) >= maxParts, maxPartsWait-p.waited
		p.mu.Unlock()
		switch {
		case !full:
			return nil
		case left <= 0:
			return stream.Errorf(stream.FlowControl, "",
				"the client does not take its partial results: %d of them waited for %v", maxParts, maxPartsWait)
		}
		began, limit := time.Now(), time.NewTimer(left)
		select {
		case <-p.room:
		case <-limit.C:
		case <-p.gone:
			limit.Stop()
			return nil
		}
		limit.Stop()
		p.mu.Lock()
		p.waited += time.Since(began)
		p.mu.Unlock()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
