package stream

import (
	"sync"

	"millrace/stream/buf"
)

// requests are unused requests. Most of the memory allocated for a small request would be the Request.
var requests = sync.Pool{New: func() any { return new(Request) }}

// newRequest returns a request for f, which is reused after its worker and the holder of its result have called
// Recycle if a caller waits for the ending: no other code than the worker and the caller keeps such a request.
func newRequest(f *Frame, s *Stream, by *Caller) *Request {
	if by == nil {
		return &Request{Frame: *f, Stream: s}
	}
	r := requests.Get().(*Request)
	r.Frame, r.Stream, r.By = *f, s, by
	r.result.request = r
	r.users.Store(2)
	return r
}

// Recycle is Unbind for a worker that does not use the request any more.
func (r *Request) Recycle() {
	r.Unbind()
	r.unuse()
}

// Recycle is Release for a holder that does not use the result, which may be nil, any more. Recycle must not be called
// twice.
func (r *Result) Recycle() {
	if r == nil {
		return
	}
	q := r.request
	r.Release()
	q.unuse()
}

// Detach returns the result without its request: a copy that may be released twice, if the request will be reused.
// The caller uses only the copy.
func (r *Result) Detach() *Result {
	q := r.request
	if q == nil || r.watcher != nil {
		return r
	}
	var out *Result
	if len(r.Outputs) == 1 && &r.Outputs[0] == &q.single[0] {
		c := &struct {
			Result
			single [1]Tensor
		}{*r, q.single}
		c.Outputs = c.single[:]
		out = &c.Result
	} else {
		out = new(Result)
		*out = *r
	}
	out.request = nil
	q.unuse()
	return out
}

// keep prevents the reuse of the request.
func (r *Request) keep() { r.users.Add(1 << 16) }

// unuse ends the use of the request by the worker, or by the holder of the result.
func (r *Request) unuse() {
	if r == nil {
		return
	}
	switch n := r.users.Add(-1); {
	case n == 0 && buf.Invariants:
		*r = Request{} // and not reused: a late use finds an empty request
	case n == 0:
		*r = Request{}
		requests.Put(r)
	case n < 0 && buf.Invariants && r.Stream == nil:
		panic("stream: request recycled twice")
	}
}
