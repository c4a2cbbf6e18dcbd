package stream

import "millrace/stream/buf"

// Finish ends the request with its outputs. Finish takes over lease, the memory under the outputs; contiguous means
// that the data of the outputs fill lease in order. Finish reports whether this ending was the first; if not, Finish
// releases lease.
func (r *Request) Finish(outputs []Tensor, lease *buf.Buf, contiguous bool) bool {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(Answered)) {
		lease.Release()
		return false
	}
	r.result.Outputs, r.result.Lease, r.result.Contiguous = outputs, lease, contiguous
	r.Stream.ended(r)
	return true
}

// FinishParams is Finish with parameters of the result.
func (r *Request) FinishParams(outputs []Tensor, lease *buf.Buf, params Params) bool {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(Answered)) {
		lease.Release()
		return false
	}
	r.result.Outputs, r.result.Lease = outputs, lease
	for key, value := range params {
		r.SetResultParam(key, value)
	}
	r.Stream.ended(r)
	return true
}

// FinishSingle is Finish with a single output, without a slice.
func (r *Request) FinishSingle(output Tensor, lease *buf.Buf, contiguous bool) bool {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(Answered)) {
		lease.Release()
		return false
	}
	r.single[0] = output
	r.result.Outputs, r.result.Lease, r.result.Contiguous = r.single[:], lease, contiguous
	r.Stream.ended(r)
	return true
}

// Fail ends the request with an error, and reports whether this ending was the first.
func (r *Request) Fail(err error) bool {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(Failed)) {
		return false
	}
	r.result.Err = err
	r.Stream.ended(r)
	return true
}

// Drop ends the request as dropped, and reports whether this ending was the first.
func (r *Request) Drop(why Reason) bool {
	if !r.outcome.CompareAndSwap(uint32(Pending), uint32(Dropped)) {
		return false
	}
	r.result.Reason = why
	r.Stream.ended(r)
	return true
}
