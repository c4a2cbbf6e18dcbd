package batching

import (
	"encoding/binary"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
)

// Batch is a worker's unit of work: the bound requests and, for a dense model, one contiguous tensor per input. One
// worker owns the Batch from Gather until Run returns; then the Batch is reused.
type Batch struct {
	Model      *stream.Model
	Requests   []*stream.Request
	Offsets    []int          // first row of each request
	Rows       int            // rows in use
	Gathered   stream.Instant // when the frames were bound
	Cause      Cause          // why the batch was formed
	RunStarted stream.Instant // begin of the run: see Begin

	// Inputs are the model's inputs with an axis of rows in front: Rows long, or Model.MaxBatch when the batch axis
	// is fixed. A ragged batch has no Inputs; its requests have their own Inputs or Payload: see Ragged.
	Inputs []stream.Tensor
	// Outputs may be set by the worker: dense tensors, row i belonging to row i of Inputs. After Run, Split answers
	// the remaining requests from Outputs.
	Outputs []stream.Tensor
	Stages  Stages // or nil
	// After turns the outputs passed to Finish into the result of request i; nil: the outputs are the result.
	After func(i int, outputs []stream.Tensor) ([]stream.Tensor, error)
	// Extend lengthens the time limit of the run, for example by the time spent waiting for a client or for the run
	// of another batch; nil: no time limit.
	Extend func(time.Duration)

	// Recycles says that nobody uses the requests after the run: see stream.Request.Recycle.
	Recycles bool

	calls    bool // the requests have a Call
	prepared bool
	mem      *buf.Pool
	data     [][]byte   // per input: MaxBatch rows, or with free dimensions the rows of this run
	leases   []*buf.Buf // per input with free dimensions
	rowBytes []int
	shapes   [][]int
	mapped   [][]byte
	segment  *Segment         // of the backend Shared
	next     *Segment         // replaces segment while results hold segment; nil = no replacement
	spares   *spares          // of the pool
	offsets  []int            // of each input in segment; -1 = not in segment
	single   [1]stream.Tensor // the only output of a result, during Stages.Answered
}

// Stages process the frames of a batch before and after its run, in the worker's goroutine.
type Stages interface {
	// Before is called before r is prepared, and reports whether Before has ended r. An ended r is not run.
	Before(r *stream.Request) (ended bool)
	// Answered is called before a result is sent; the data are in lease.
	Answered(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf)
}

// Lease leases memory for a worker's per-stream state.
func (b *Batch) Lease(n int) (*buf.Buf, error) { return b.mem.Lease(n) }

// Begin sets the begin of the batch's run to now. A worker that receives a batch while running another batch calls
// Begin in Run, when the new run starts.
func (b *Batch) Begin(now stream.Instant) {
	b.RunStarted = now
	for _, r := range b.Requests {
		r.Begin(now)
	}
}

// Row returns the memory of row i of input k, of a dense batch.
func (b *Batch) Row(k, i int) []byte {
	n := b.rowBytes[k]
	return b.data[k][i*n : (i+1)*n : (i+1)*n]
}

// Calls reports whether the requests come from routes (stream.Frame.Call); a batch has either only such requests or
// none. Windows and stages do not apply to calls.
func (b *Batch) Calls() bool { return b.calls }

// Ragged reports whether the requests have their own inputs: in batches of a ragged model, and in batches of calls.
func (b *Batch) Ragged() bool { return b.Model.Ragged || b.calls }

// bind adds a request.
func (b *Batch) bind(r *stream.Request) {
	b.calls = r.Call != nil
	b.Requests = append(b.Requests, r)
	b.Rows += r.Rows
}

// Take appends the requests to a worker's list. The worker ends and unbinds the requests itself, possibly after Run
// has returned. Stages, the run's time limit and batch metrics do not apply to these requests.
func (b *Batch) Take(to []*stream.Request) []*stream.Request {
	to = append(to, b.Requests...)
	clear(b.Requests)
	b.Requests, b.Offsets, b.Rows = b.Requests[:0], b.Offsets[:0], 0
	return to
}

// Finish answers request i with outputs, whose shapes have the request's rows in front. Finish copies the outputs, so
// that the worker may reuse their memory. An output inside the batch's segment may be answered without a copy; the
// batch then gets another segment.
func (b *Batch) Finish(i int, outputs []stream.Tensor) {
	if b.After != nil {
		var err error
		if outputs, err = b.After(i, outputs); err != nil {
			b.Fail(i, err)
			return
		}
	}
	n := 0
	for k := range outputs {
		n += len(outputs[k].Data)
	}
	var lease *buf.Buf
	if len(outputs) == 1 {
		lease = b.lend(outputs[0].Data)
	}
	lent := lease != nil
	if !lent {
		var err error
		if lease, err = b.mem.Lease(n); err != nil {
			b.Requests[i].Drop(stream.Memory)
			return
		}
	}
	dst := lease.Bytes()
	if len(outputs) == 1 {
		one := outputs[0]
		if !lent {
			copy(dst, one.Data)
			one.Data = dst
		}
		if b.Stages != nil {
			b.single[0] = one
			b.Stages.Answered(b.Requests[i], b.single[:], lease)
		}
		trimmed := [1]stream.Tensor{one}
		if !b.calls {
			b.Model.TrimRows(trimmed[:])
		}
		b.Requests[i].FinishSingle(trimmed[0], lease, true)
		return
	}
	out := make([]stream.Tensor, len(outputs))
	for k := range outputs {
		out[k] = outputs[k]
		m := copy(dst, outputs[k].Data)
		out[k].Data, dst = dst[:m:m], dst[m:]
	}
	if b.Stages != nil {
		b.Stages.Answered(b.Requests[i], out, lease)
	}
	if !b.calls {
		b.Model.TrimRows(out)
	}
	b.Requests[i].Finish(out, lease, true)
}

// Emit sends a copy of outputs as a part of the result of request i; a later Finish, Fail or Drop ends the request.
// Emit returns false when the request has ended, for example because the client has gone. Emit may wait for the
// client (see stream.Request.Emit).
func (b *Batch) Emit(i int, outputs []stream.Tensor) bool {
	r := b.Requests[i]
	if b.After != nil {
		var err error
		if outputs, err = b.After(i, outputs); err != nil {
			r.Fail(err)
			return false
		}
	}
	n := 0
	for k := range outputs {
		n += len(outputs[k].Data)
	}
	lease, err := b.mem.Lease(n)
	if err != nil {
		r.Drop(stream.Memory)
		return false
	}
	dst := lease.Bytes()
	out := make([]stream.Tensor, len(outputs))
	for k := range outputs {
		out[k] = outputs[k]
		m := copy(dst, outputs[k].Data)
		out[k].Data, dst = dst[:m:m], dst[m:]
	}
	return r.Emit(out, lease)
}

// Fail ends request i with an error. Other requests are not affected.
func (b *Batch) Fail(i int, err error) { b.Requests[i].Fail(err) }

// FailAll ends every unfinished request with err.
func (b *Batch) FailAll(err error) {
	for _, r := range b.Requests {
		r.Fail(err)
	}
}

// Pending reports whether a request has no ending.
func (b *Batch) Pending() bool {
	for _, r := range b.Requests {
		if r.Outcome() == stream.Pending {
			return true
		}
	}
	return false
}

// Split answers the unfinished requests with their rows of Outputs. All fail if an output's first dimension is not
// the number of input rows.
func (b *Batch) Split() {
	if !b.Pending() {
		return
	}
	if b.Outputs == nil {
		b.FailAll(stream.Errorf(stream.Internal, "", "model %s gave no answer for this frame", b.Model.Name))
		return
	}
	rows := b.Rows
	if b.Model.Axis == stream.FixedAxis {
		rows = b.Model.MaxBatch
	}
	for i := range b.Outputs {
		t := &b.Outputs[i]
		if len(t.Shape) == 0 || t.Shape[0] != rows || !wholeRows(t) {
			b.FailAll(stream.Errorf(stream.Internal, "outputs."+t.Name, "shape %v for a batch of %d rows", t.Shape,
				rows))
			return
		}
	}
	parts := make([]stream.Tensor, len(b.Outputs))
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		for k := range b.Outputs {
			t := &b.Outputs[k]
			parts[k] = *t
			parts[k].Data = RowsOf(t, b.Offsets[i], r.Rows)
			parts[k].Shape = append([]int{r.Rows}, t.Shape[1:]...)
		}
		b.Finish(i, parts)
	}
}

// wholeRows reports whether the data of t can be divided into rows.
func wholeRows(t *stream.Tensor) bool {
	if t.Datatype == stream.Bytes {
		return t.CheckSize("") == nil
	}
	return len(t.Data)%max(t.Shape[0], 1) == 0
}

// RowsOf returns the data of n rows of t, whose size must have been checked. Rows of BYTES vary in length.
func RowsOf(t *stream.Tensor, first, n int) []byte {
	if t.Datatype != stream.Bytes {
		row := len(t.Data) / t.Shape[0]
		return t.Data[first*row : (first+n)*row]
	}
	each := stream.Elements(t.Shape[1:])
	from := skip(t.Data, first*each)
	return t.Data[from : from+skip(t.Data[from:], n*each)]
}

// skip returns how many bytes n elements of BYTES take.
func skip(data []byte, n int) (size int) {
	for range n {
		size += 4 + int(binary.LittleEndian.Uint32(data[size:]))
	}
	return size
}
