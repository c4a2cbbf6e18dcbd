package stream_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"millrace/stream"
	"millrace/stream/buf"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Rare orders of steps need more than the usual hundred attempts.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue && !testing.Short() {
		_ = f.Value.Set("2000")
	}
	goleak.VerifyTestMain(m)
}

// queue is a concurrent queue of tokens.
type queue struct {
	mu         sync.Mutex
	tokens     []*stream.Stream
	affinities []any
	last       any // affinity of the last token
	waiting    int
	most       int // of waiting; 0 = no bound
	ended      int
	detached   int
	looks      int // calls of AddWaiting(0)
	faults     []string
}

func (e *queue) Enqueue(s *stream.Stream, affinity any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.tokens {
		if x == s {
			e.faults = append(e.faults, "two tokens of one stream are queued")
		}
	}
	if e.detached > 0 {
		e.faults = append(e.faults, "a token was queued after the place was given back")
	}
	e.tokens, e.affinities, e.last = append(e.tokens, s), append(e.affinities, affinity), affinity
}

func (e *queue) Admit(inPlace bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if inPlace {
		return nil
	}
	if e.most > 0 && e.waiting >= e.most {
		return stream.Errorf(stream.Overloaded, "queue.max_size", "full")
	}
	e.waiting++
	return nil
}

func (e *queue) AddWaiting(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting += n; e.waiting < 0 {
		e.faults = append(e.faults, "a negative number of frames waits")
	}
	if n == 0 {
		e.looks++
	}
}

func (e *queue) Ended(*stream.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended++
}

func (e *queue) Detach(s *stream.Stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.detached++; e.detached > 1 {
		e.faults = append(e.faults, "the place was given back twice")
	}
	for _, x := range e.tokens {
		if x == s {
			e.faults = append(e.faults, "the place was given back while the token is queued")
		}
	}
}

// pop takes the oldest token out, as a worker does.
func (e *queue) pop() *stream.Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.tokens) == 0 {
		return nil
	}
	s := e.tokens[0]
	e.tokens, e.affinities = e.tokens[1:], e.affinities[1:]
	return s
}

func (e *queue) waits() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting
}

func (e *queue) queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.tokens)
}

// sink keeps each pushed ending as text: "seq outcome reason".
type sink struct {
	mu     sync.Mutex
	log    []string
	models []*stream.Model
	done   []stream.CloseReason
}

func (k *sink) Push(r *stream.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	line := fmt.Sprint(r.Seq, " ", r.Outcome)
	switch {
	case r.Partial:
		line = fmt.Sprint(r.Seq, " part")
	case r.Outcome == stream.Dropped:
		line += " " + string(r.Reason)
	case r.Outcome == stream.Failed:
		line += " " + string(stream.CodeOf(r.Err))
	}
	if len(k.done) > 0 {
		line += " AFTER DONE"
	}
	k.log, k.models = append(k.log, line), append(k.models, r.Model)
	r.Release()
}

func (k *sink) Done(why stream.CloseReason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = append(k.done, why)
}

func (k *sink) lines() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.log...)
}

// bench is a stream with its queue, sink and memory.
type bench struct {
	*stream.Stream
	ep   *queue
	sink *sink
	mem  *buf.Pool
	now  stream.Instant
	seq  uint64
}

func newBench(m *stream.Model, p stream.Policy) *bench {
	b := &bench{ep: &queue{}, sink: &sink{}, mem: buf.NewPool(0), now: 1e15}
	b.Stream = stream.New(m, b.ep, b.sink, stream.Options{Policy: p})
	return b
}

// offer submits the next frame, after edit.
func (b *bench) offer(edit ...func(*stream.Frame)) error {
	l, err := b.mem.Copy([]byte("frame"))
	if err != nil {
		return err
	}
	f := stream.Frame{Seq: b.seq, Payload: l.Bytes(), Lease: l}
	for _, e := range edit {
		e(&f)
	}
	err = b.SubmitAt(f, b.now)
	if err == nil {
		b.seq++
	}
	return err
}

// take does a worker's part with the oldest token.
func (b *bench) take(t testing.TB) *stream.Request {
	t.Helper()
	if b.ep.pop() == nil {
		t.Fatal("no token is queued")
	}
	r, kept := b.Take(b.now, 1, nil, 0)
	if kept {
		t.Fatal("a frame of one row did not fit")
	}
	return r
}

func must(f *stream.Frame) { f.Must = true }

// unknown turns f into a frame that the model "any" refuses.
func unknown(f *stream.Frame) { f.Codec, f.Inputs = stream.Tensors, nil }

func answer(mem *buf.Pool, r *stream.Request) bool {
	l, _ := mem.Copy([]byte("answer"))
	return r.FinishSingle(stream.Tensor{Name: "y", Datatype: stream.Uint8, Shape: []int{6}, Data: l.Bytes()}, l, true)
}

var anything = &stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}

// check fails unless the pushed lines are want, and the totals add up without faults.
func (b *bench) check(t *testing.T, want ...string) {
	t.Helper()
	if got := b.sink.lines(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("pushed %q\nwant   %q", got, want)
	}
	if len(b.ep.faults) > 0 {
		t.Fatal(b.ep.faults)
	}
}

// checkFinished fails unless the stream has finished and everything was released.
func (b *bench) checkFinished(t *testing.T) {
	t.Helper()
	for s := b.ep.pop(); s != nil; s = b.ep.pop() {
		s.ReleaseToken()
	}
	select {
	case <-b.Finished():
	default:
		t.Fatal("the stream is not finished")
	}
	c := b.Counts()
	if c.Accepted != c.Results+c.Drops+c.Errors || int(c.Accepted) != b.ep.ended {
		t.Fatalf("%+v, %d endings reported", c, b.ep.ended)
	}
	if b.ep.detached != 1 || b.ep.waiting != 0 || len(b.sink.done) != 1 || len(b.ep.faults) > 0 {
		t.Fatalf("detached %d times, %d wait, done %v, %v", b.ep.detached, b.ep.waiting, b.sink.done, b.ep.faults)
	}
	if n := b.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases were not given back", n)
	}
}
