package batching

import (
	"fmt"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
)

// stub is a batcher that records its views and decides by a function of the test.
type stub struct {
	needs  Needs
	views  []View
	decide func(v View) (int, time.Duration)
}

func (s *stub) Needs() Needs { return s.needs }

func (s *stub) Decide(v View) (int, time.Duration) {
	s.views = append(s.views, v)
	if s.decide == nil {
		return 0, 0
	}
	return s.decide(v)
}

// withBatcher is newGroup with another batcher.
func withBatcher(t testing.TB, m *stream.Model, b Batcher, buffers int) *group {
	t.Helper()
	g := newGroup(t, m, Adaptive, buffers, 256)
	g.intake = NewIntake(m, b, g.pool, 256)
	return g
}

// The shortest wait of all pending batches, in both inboxes, is returned; 0 means no wait.
func TestShortestWait(t *testing.T) {
	const ms = time.Millisecond
	m := bytesModel(4, -1)
	for _, c := range []struct{ own, first, second, want time.Duration }{
		{0, 5 * ms, 3 * ms, 3 * ms}, {0, 3 * ms, 5 * ms, 3 * ms}, {0, 3 * ms, 0, 3 * ms}, {0, 0, 3 * ms, 3 * ms},
		{0, 0, 0, 0},
		{2 * ms, 3 * ms, 0, 2 * ms}, {4 * ms, 3 * ms, 0, 3 * ms}, {4 * ms, 0, 0, 4 * ms},
	} {
		waits := []time.Duration{c.own, c.first, c.second}
		b := &stub{}
		b.decide = func(View) (int, time.Duration) { return 0, waits[len(b.views)-1] }
		g := withBatcher(t, m, b, 4)
		own := g.intake.NewInbox()
		for i := range waits {
			s, _ := g.open(t, window)
			if i == 0 {
				s.SetAffinity(g, own)
			}
			_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 1+i), 1)
		}
		if batch, wait, err := g.intake.Gather(2, 1, own); batch != nil || wait != c.want || err != nil {
			t.Errorf("waits %v: %v, %v, %v", waits, batch, wait, err)
		}
	}
}

// The batcher's View of the waiting frames.
func TestViews(t *testing.T) {
	b := &stub{needs: Needs{Pending: true, Oldest: true, Deadline: true}}
	g := withBatcher(t, bytesModel(4, -1), b, 4)
	own := g.intake.NewInbox()
	submit := func(size, n int, at stream.Instant, own *Inbox) {
		s, _ := g.open(t, stream.Policy{Mode: stream.Every, Window: 64, MaxAge: 100})
		if own != nil {
			s.SetAffinity(g, own)
		}
		if err := s.SubmitAt(rows(g.mem, 0, 1, n, size), epoch+at); err != nil {
			t.Fatal(err)
		}
	}
	submit(1, 2, 10, own)
	submit(2, 3, 20, nil)
	submit(2, 3, 15, nil)
	submit(3, 1, 30, nil)
	_, _, _ = g.intake.Gather(epoch+40, 3, own)
	want := []View{
		// of the own inbox: only this worker runs the frames
		{Rows: 2, Idle: 1, Pending: 3, Oldest: 30, Deadline: 70},
		{Rows: 6, Idle: 3, Pending: 3, Deadline: NoDeadline}, // a full batch waits: the rest of the view is not set
		{Rows: 1, Idle: 3, Pending: 3, Oldest: 10, Deadline: 90},
	}
	for i, v := range b.views {
		v.Predict = nil
		if i >= len(want) || fmt.Sprint(v) != fmt.Sprint(want[i]) {
			t.Errorf("view %d is %+v", i, v)
		}
	}
	if len(b.views) != len(want) {
		t.Errorf("%d views", len(b.views))
	}

	// Exactly MaxBatch rows are full; no more rows are counted than idle workers could
	// run.
	b.views = nil
	g = withBatcher(t, bytesModel(4, 2), b, 4)
	for range 12 {
		submit(2, 1, 10, nil)
	}
	_, _, _ = g.intake.Gather(epoch+40, 2, nil)
	if v := b.views[0]; v.Rows != 8 || v.Oldest != 0 || v.Deadline != NoDeadline {
		t.Errorf("%+v", v)
	}
	b.views = nil
	g = withBatcher(t, bytesModel(4, 2), b, 4)
	submit(2, 4, 10, nil)
	_, _, _ = g.intake.Gather(epoch+40, 1, nil)
	if v := b.views[0]; v.Rows != 4 || v.Oldest != 0 || v.Deadline != NoDeadline {
		t.Errorf("%+v", v)
	}
}

// Each stateful stream counts as one frame, since only one frame at a time can be in a batch.
func TestStatefulStreamsCountAsOne(t *testing.T) {
	b := &stub{}
	m := bytesModel(8, 2)
	m.Stateful = true
	g := withBatcher(t, m, b, 4)
	s, _ := g.open(t, window)
	for range 3 {
		_ = s.SubmitAt(rows(g.mem, 0, 1, 2, 2), 1)
	}
	_, _, _ = g.intake.Gather(2, 1, nil)
	if v := b.views[0]; v.Rows != 2 {
		t.Errorf("%d rows, want those of one frame of three", v.Rows)
	}
	_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 2), 1) // 7 rows of 4 frames: 2 of each, rounded up
	_, _, _ = g.intake.Gather(2, 1, nil)
	if v := b.views[1]; v.Rows != 2 {
		t.Errorf("%d rows, want 2", v.Rows)
	}
}

// A worker serves its own inbox first, except every third time.
func TestOwnInboxComesFirst(t *testing.T) {
	g := newGroup(t, bytesModel(1, 2), Adaptive, 4, 64)
	own := g.intake.NewInbox()
	mine, _ := g.open(t, window)
	mine.SetAffinity(g, own)
	other, _ := g.open(t, window)
	for range 20 {
		_ = mine.SubmitAt(rows(g.mem, 0, 1, 1, 2), 1)
		_ = other.SubmitAt(rows(g.mem, 0, 1, 1, 2), 1)
	}
	order := ""
	for range 9 {
		b, _, _ := g.intake.Gather(2, 1, own)
		if b.Requests[0].Stream == mine {
			order += "m"
		} else {
			order += "o"
		}
		b.FailAll(fmt.Errorf("enough"))
		g.pool.Put(b)
	}
	if order != "mmommommo" {
		t.Errorf("served %s", order)
	}
}

// An intake is idle when neither a token nor a batch waits in the common inbox.
func TestIdleIntake(t *testing.T) {
	b := &stub{}
	g := withBatcher(t, anything, b, 4)
	if !g.intake.Idle() || g.intake.HasReady() || g.intake.TakeExhausted() {
		t.Error("a new one is not idle")
	}
	s, _ := g.open(t, window)
	offer(t, s, 1)
	if g.intake.Idle() {
		t.Error("idle with a token in the ring")
	}
	_, _, _ = g.intake.Gather(2, 1, nil) // the token is pending now
	if g.intake.Idle() {
		t.Error("idle with a token that is pending")
	}
	b.decide = func(v View) (int, time.Duration) { return v.Rows, 0 }
	batch, _, _ := g.intake.Gather(2, 1, nil)
	if !g.intake.Idle() {
		t.Error("not idle although nothing is left")
	}
	g.intake.AddReady(batch)
	if g.intake.Idle() || !g.intake.HasReady() {
		t.Error("idle with a batch that waits")
	}
	if again, _, _ := g.intake.Gather(2, 1, nil); again != batch || g.intake.HasReady() {
		t.Error("the batch that waits is not gathered")
	}
	g.run(batch)
}

// A failed gathering for want of a free batch is reported once.
func TestExhausted(t *testing.T) {
	g := newGroup(t, anything, Adaptive, 1, 16)
	var open []*stream.Stream
	for range 2 {
		s, _ := g.open(t, window)
		offer(t, s, 1)
		open = append(open, s)
	}
	first := g.gather(t, 2, 2)
	if g.intake.TakeExhausted() {
		t.Error("exhausted while a batch was free")
	}
	offer(t, open[0], 3)
	g.gather(t, 4, 0)
	if !g.intake.TakeExhausted() || g.intake.TakeExhausted() {
		t.Error("not reported exactly once")
	}
	g.run(first)
	g.run(g.gather(t, 5, 1))
	if g.intake.TakeExhausted() {
		t.Error("exhausted after a batch was free again")
	}
}

// Frames of free dimensions share ragged batches, where each request has its own tensors; frames of fixed dimensions
// always share batches.
func TestRaggedModelsHaveOneClass(t *testing.T) {
	ragged := bytesModel(4, -1)
	ragged.Ragged = true
	for name, c := range map[string]struct {
		model   *stream.Model
		sizes   []int
		batches int
	}{
		"free": {bytesModel(4, -1), []int{1, 2}, 2}, "ragged": {ragged, []int{1, 2}, 1},
		"fixed": {bytesModel(4, 2), []int{2, 2}, 1},
	} {
		g := newGroup(t, c.model, Adaptive, 4, 16)
		for _, size := range c.sizes {
			s, _ := g.open(t, window)
			if err := s.SubmitAt(rows(g.mem, 0, 1, 1, size), 1); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for b, _, _ := g.intake.Gather(2, 1, nil); b != nil; b, _, _ = g.intake.Gather(2, 1, nil) {
			n++
			b.FailAll(fmt.Errorf("enough"))
			g.pool.Put(b)
		}
		if n != c.batches {
			t.Errorf("%s: %d batches, want %d", name, n, c.batches)
		}
	}
}

// The memory of served tokens is reused, and the order stays.
func TestTokenQueueReleasesMemory(t *testing.T) {
	var q tokenQueue
	next := uint64(0)
	for i := range uint64(200) {
		q.push(token{number: i})
	}
	for range 5000 {
		if got := q.peek().number; got != next {
			t.Fatalf("token %d, want %d", got, next)
		}
		q.pop()
		next++
		q.push(token{number: next + 199})
		if len(q.all()) != 200 || q.head > 200 || len(q.items) > 400 {
			t.Fatalf("%d tokens, head %d of %d", len(q.all()), q.head, len(q.items))
		}
	}
	moved := tokenQueue{items: make([]token, 128), head: 62}
	moved.pop()
	if moved.head != 63 {
		t.Errorf("head %d: moved too early", moved.head)
	}
	moved.pop()
	if moved.head != 0 || len(moved.items) != 64 {
		t.Errorf("head %d of %d: not moved", moved.head, len(moved.items))
	}
	long := tokenQueue{items: make([]token, 200), head: 63}
	long.pop()
	if long.head != 64 {
		t.Errorf("head %d: most of the queue was moved", long.head)
	}
}

func backends() []Backend {
	if SharedAvailable() {
		return []Backend{Heap, C, Shared}
	}
	return []Backend{Heap, C}
}

// Batches of mapped memory are used like other batches, and batches beyond a smaller bound are freed.
func TestPoolReleasesMemory(t *testing.T) {
	for _, backend := range backends() {
		g := newGroup(t, bytesModel(4, 2), Adaptive, 3, 16)
		p, err := NewPool(g.model, g.mem, backend, 3)
		if err != nil {
			t.Fatal(err)
		}
		var used []*Batch
		for range 3 {
			b, err := p.Take()
			if err != nil || b == nil {
				t.Fatal(b, err)
			}
			if mapped := len(b.mapped) > 0 || b.segment != nil; mapped != (backend != Heap) {
				t.Errorf("%s: mapped %v", backend, mapped)
			}
			for i := range 4 {
				if row := b.Row(0, i); len(row) != 2 {
					t.Fatalf("%s: a row of %d bytes", backend, len(row))
				}
				b.Row(0, i)[1] = byte(i)
			}
			used = append(used, b)
		}
		for _, b := range used {
			p.Put(b)
		}
		if p.Free() != 3 {
			t.Errorf("%s: %d free", backend, p.Free())
		}
		p.Resize(1)
		if p.Free() != 1 || p.made != 1 || len(p.free) != 1 {
			t.Errorf("%s: %d free of %d", backend, p.Free(), p.made)
		}
		p.Resize(0)
		if p.Size() != 1 || p.Free() != 1 {
			t.Errorf("%s: a size of %d, %d free", backend, p.Size(), p.Free())
		}
		p.Close()
		if p.made != 0 {
			t.Errorf("%s: %d are left", backend, p.made)
		}
	}
}

// all keeps every output of each result.
type all struct{ results []string }

func (k *all) Push(r *stream.Result) {
	line := r.Outcome.String()
	for _, t := range r.Outputs {
		line += fmt.Sprintf(" %s%v=%q", t.Name, t.Shape, t.Data)
	}
	k.results = append(k.results, line)
	r.Release()
}

func (*all) Done(stream.CloseReason) {}

// endsSecond is a stage that ends the second frame before its run.
type endsSecond struct{ asked int }

func (s *endsSecond) Before(r *stream.Request) bool {
	s.asked++
	return r.Seq == 1 && r.Drop(stream.Flushed)
}

func (*endsSecond) Answered(*stream.Request, []stream.Tensor, *buf.Buf) {}

// Inputs of free and of fixed dimensions go into their rows by name, in any order, and all outputs are returned
// complete. Requests ended by a stage or a failure do not change other requests.
func TestInputsByName(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 4, Inputs: []stream.TensorSpec{
		{Name: "a", Datatype: stream.Float32, Shape: []int{-1}}, {Name: "b", Datatype: stream.Uint8, Shape: []int{2}},
		{Name: "c", Datatype: stream.Float32, Shape: []int{-1, 2}},
		{Name: "d", Datatype: stream.Float32, Shape: []int{1}},
	}}
	g := newGroup(t, m, Adaptive, 1, 8)
	k := &all{}
	if err := g.intake.Reserve(); err != nil {
		t.Fatal(err)
	}
	s := stream.New(m, g, k, stream.Options{Policy: window})
	data := func(i, n int) []byte { return []byte("abcdefghijklmnopqrstuvwxyz")[i : i+n] }
	for i := range 4 {
		f := stream.Frame{Seq: uint64(i), Codec: stream.Tensors, Inputs: []stream.Tensor{
			{Name: "d", Datatype: stream.Float32, Shape: []int{1}, Data: data(i+3, 4)},
			{Name: "c", Datatype: stream.Float32, Shape: []int{1, 2}, Data: data(i, 8)},
			{Name: "b", Datatype: stream.Uint8, Shape: []int{2}, Data: data(i+1, 2)},
			{Name: "a", Datatype: stream.Float32, Shape: []int{3}, Data: data(i+2, 12)},
		}}
		if err := s.SubmitAt(f, 1); err != nil {
			t.Fatal(err)
		}
	}
	b := g.gather(t, 2, 4)
	stages := &endsSecond{}
	b.Stages = stages
	b.Prepare(nil)
	if stages.asked != 4 || b.Rows != 3 {
		t.Fatalf("%d asked, %d rows are left", stages.asked, b.Rows)
	}
	b.Fail(0, stream.Errorf(stream.Internal, "", "a failure"))
	b.Outputs = append([]stream.Tensor(nil), b.Inputs...)
	b.Split()
	g.pool.Put(b)
	want := []string{"error", "drop"}
	for _, i := range []int{2, 3} {
		want = append(want, fmt.Sprintf("result a[1 3]=%q b[1 2]=%q c[1 1 2]=%q d[1 1]=%q", data(i+2, 12),
			data(i+1, 2), data(i, 8), data(i+3, 4)))
	}
	if fmt.Sprint(k.results) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", k.results, want)
	}
}

// Requests after a request that cannot be prepared take its rows.
func TestFailedRequestsLeaveTheirRows(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 3, Image: &stream.ImageSpec{},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}}}}
	g := newGroup(t, m, Adaptive, 1, 8)
	s, k := g.open(t, window)
	for i := range 3 {
		_ = s.SubmitAt(stream.Frame{Seq: uint64(i), Codec: stream.JPEG}, 1)
	}
	b := g.gather(t, 2, 3)
	b.Prepare(func(r *stream.Request, dst []byte) error {
		if r.Seq == 0 {
			return stream.Errorf(stream.Unsupported, "frame", "no picture")
		}
		dst[0] = byte('a' + r.Seq)
		return nil
	})
	if b.Rows != 2 || b.Requests[0].BatchSize != 2 {
		t.Errorf("%d rows", b.Rows)
	}
	echo(b)
	g.pool.Put(b)
	if got := fmt.Sprint(k.results[1:]); got != "[b c]" {
		t.Errorf("%v", k.results)
	}
}

// A request that ends after binding, because its client leaves, takes no row. In a batch that waits to be full, the
// request counts, so that other requests do not wait longer.
func TestEndedRequestsLeaveTheirRows(t *testing.T) {
	for name, whole := range map[string]bool{"bound, and the batch waits for the last": false,
		"the batch is full": true} {
		b := &stub{needs: Needs{Full: true}, decide: func(View) (int, time.Duration) { return 3, 0 }}
		g := withBatcher(t, bytesModel(3, 1), b, 1)
		var streams []*stream.Stream
		var sinks []*sink
		for i := range 3 {
			s, k := g.open(t, window)
			streams, sinks = append(streams, s), append(sinks, k)
			if i == 2 {
				g.gather(t, 2, 0)
				if !whole {
					streams[1].Abandon(stream.Errorf(stream.Canceled, "", "gone"))
				}
			}
			_ = s.SubmitAt(rows(g.mem, 0, byte('a'+i), 1, 1), 1)
		}
		batch := g.gather(t, 3, 3)
		if whole {
			streams[1].Abandon(stream.Errorf(stream.Canceled, "", "gone"))
		}
		if !batch.Prepare(nil) || batch.Rows != 2 || batch.Requests[0].BatchSize != 2 {
			t.Errorf("%s: %d rows", name, batch.Rows)
		}
		echo(batch)
		g.pool.Put(batch)
		if got := fmt.Sprint(sinks[0].results, sinks[1].results, sinks[2].results); got != "[a] [error: canceled] [c]" {
			t.Errorf("%s: %s", name, got)
		}
		if n := g.mem.Stats().Leases; n != 0 {
			t.Errorf("%s: %d leases are left", name, n)
		}
	}
}

// Closed streams add no rows, however many closed streams precede an open stream, and their class is removed.
func TestTokensOfClosedStreamsAddNoRows(t *testing.T) {
	b := &stub{}
	g := withBatcher(t, bytesModel(4, -1), b, 4)
	for i := range 100 {
		s, _ := g.open(t, window)
		_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 1+i%3), 1)
		s.Close(stream.ClientGone)
	}
	_, _, _ = g.intake.Gather(2, 1, nil)
	if len(b.views) != 0 || !g.intake.Idle() || g.detached != 100 || len(g.intake.common.pending) != 1 {
		t.Errorf("asked %d times, %d detached, %d classes", len(b.views), g.detached, len(g.intake.common.pending))
	}
	b.decide = func(v View) (int, time.Duration) { return v.Rows, 0 }
	for range 100 {
		s, _ := g.open(t, window)
		_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 1), 1)
		s.Close(stream.ClientGone)
	}
	s, _ := g.open(t, window)
	_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 1), 1)
	g.run(g.gather(t, 3, 1))
}

// An unused batch beyond the bound is freed at once; a batch in use is freed when put back.
func TestPoolShrinksWhileInUse(t *testing.T) {
	g := newGroup(t, bytesModel(1, 1), Adaptive, 3, 8)
	var used [3]*Batch
	for i := range used {
		used[i], _ = g.pool.Take()
	}
	g.pool.Put(used[0])
	g.pool.Resize(1)
	if g.pool.made != 2 || len(g.pool.free) != 0 {
		t.Errorf("%d made, %d free", g.pool.made, len(g.pool.free))
	}
	g.pool.Put(used[1])
	g.pool.Put(used[2])
	if g.pool.made != 1 || g.pool.Free() != 1 {
		t.Errorf("%d made, %d free", g.pool.made, g.pool.Free())
	}
}

func TestRingRefusesAtItsSize(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 64} {
		r, size := NewRing[int](n), 2
		for size < n {
			size *= 2
		}
		for i := range 3 * size { // also after all cells were used once
			if !r.Push(i) || r.Len() != 1 {
				t.Fatalf("%d places: %d", n, r.Len())
			}
			r.Pop()
		}
		for i := range size {
			if r.full() || !r.Push(i) {
				t.Fatalf("%d places: full at %d of %d", n, i, size)
			}
		}
		if !r.full() || r.Push(0) || r.Len() != size {
			t.Errorf("%d places: %d taken", n, r.Len())
		}
	}
}
