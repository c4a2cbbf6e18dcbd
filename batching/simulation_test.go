package batching

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/internal/testseed"
	"millrace/stream"
)

// simulation runs an Intake with streams and workers in virtual time, in one goroutine, determined by the seed alone.
type simulation struct {
	t       *testing.T
	g       *group
	rand    *rand.Rand
	now     stream.Instant
	events  events
	idle    []int // workers
	count   int
	running int
	asked   stream.Instant // when to gather again; 0 = no
	service func(rows int) time.Duration
	senders []*sender
	frames  int // accepted
	// greedy requires a batch whenever frames wait and a worker is idle.
	greedy bool
	runs   int // batches
	rows   int // total of all batches
	// passed has the frames at the head of their streams when the batcher let a worker stay idle, if the frames would
	// have been in time with a run at that moment. late counts the late frames in passed.
	passed map[uint64]bool
	waits  int // decisions to wait with such frames
	late   int
	ended  func(b *Batch) // called before a batch ends; may be nil
}

type sender struct {
	stream *stream.Stream
	sink   *sink
	every  time.Duration // between frames
	shape  int
	sent   []uint64 // accepted frames
}

// next is the number of the oldest waiting frame.
func (f *sender) next() uint64 { return f.sent[len(f.sent)-f.stream.WaitingFrames()] }

type event struct {
	at stream.Instant
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newSimulation(t *testing.T, seed uint64, m *stream.Model, kind string, workers, buffers int) *simulation {
	s := &simulation{t: t, g: newGroup(t, m, kind, buffers, 256), rand: rand.New(rand.NewPCG(seed, 1)), now: epoch,
		passed: map[uint64]bool{}}
	s.greedy = !s.g.intake.NeedsArrivals() && buffers >= workers
	for w := range workers {
		s.idle = append(s.idle, w)
	}
	s.service = func(rows int) time.Duration { return 5*time.Millisecond + time.Duration(rows)*time.Millisecond }
	return s
}

func (s *simulation) at(d time.Duration, do func()) {
	s.count++
	heap.Push(&s.events, event{s.now.Add(d), s.count, do})
}

// add opens a stream that sends a frame about every interval until the end.
func (s *simulation) add(p stream.Policy, every time.Duration, shape int) *sender {
	f := &sender{every: every, shape: shape}
	f.stream, f.sink = s.g.open(s.t, p)
	s.senders = append(s.senders, f)
	var send func()
	send = func() {
		frame := stream.Frame{}
		if shape > 0 {
			frame = rows(s.g.mem, 0, 1, 1+s.rand.IntN(2), shape)
		}
		s.count++
		frame.Seq = uint64(s.count)
		if f.stream.SubmitAt(frame, s.now) == nil {
			s.frames++
			f.sent = append(f.sent, frame.Seq)
		}
		// The interval varies by a tenth, so that the streams do not send at the same moments.
		s.at(time.Duration(float64(every)*(0.9+0.2*s.rand.Float64())), send)
	}
	s.at(time.Duration(s.rand.Int64N(int64(every))), send)
	return f
}

// waiting returns the number of frames that could be bound; a stateful stream with a frame in flight has none.
func (s *simulation) waiting() (n int) {
	for _, f := range s.senders {
		w := f.stream.WaitingFrames()
		if c := f.stream.Counts(); s.g.model.Stateful && c.Accepted > c.Results+c.Drops+c.Errors+uint64(w) {
			continue
		}
		n += w
	}
	return n
}

// pass records the waiting frames while a worker is idle.
func (s *simulation) pass() {
	waiting := map[int]int{} // rows, by shape
	for _, f := range s.senders {
		waiting[f.shape] += f.stream.WaitingRows()
	}
	for _, f := range s.senders {
		head, ok := f.stream.Head()
		ends := s.now.Add(s.service(min(waiting[f.shape], s.g.model.MaxBatch)))
		if ok && head.Deadline != 0 && ends <= head.Deadline && !s.passed[f.next()] {
			s.passed[f.next()] = true
			s.waits++
		}
	}
}

// work makes the idle workers gather all possible batches.
func (s *simulation) work() {
	for len(s.idle) > 0 {
		s.g.intake.SetFree(len(s.idle), len(s.idle)+s.running)
		b, wait, err := s.g.intake.Gather(s.now, len(s.idle), nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if b == nil {
			if s.greedy && s.ended == nil && s.waiting() > 0 {
				s.t.Fatalf("%d frames wait, %d workers are idle, and there is no batch", s.waiting(), len(s.idle))
			}
			if s.g.intake.needs.Deadline {
				s.pass()
			}
			if wait > 0 && s.asked != s.now.Add(wait) {
				s.asked = s.now.Add(wait)
				s.at(wait, func() {})
			}
			return
		}
		w := s.idle[0]
		s.idle = s.idle[1:]
		if !s.g.model.Ragged {
			if !b.Prepare(nil) {
				s.t.Fatal("nothing prepared")
			}
			for _, r := range b.Requests {
				if r.Class != b.Requests[0].Class {
					s.t.Fatal("two classes in a batch")
				}
			}
		}
		if b.Rows > s.g.model.MaxBatch || b.Rows == 0 {
			s.t.Fatalf("%d rows", b.Rows)
		}
		begun := s.now
		s.running++
		s.runs, s.rows = s.runs+1, s.rows+b.Rows
		s.at(s.service(b.Rows), func() {
			s.running--
			n := b.Rows
			for _, r := range b.Requests {
				if s.passed[r.Seq] && s.now > r.Deadline {
					s.late++
				}
				delete(s.passed, r.Seq)
			}
			if s.ended != nil {
				s.ended(b)
			}
			s.g.run(b)
			s.g.intake.Observe(s.now, n, s.now.Sub(begun))
			s.idle = append(s.idle, w)
		})
	}
}

// run simulates d. After each event the idle workers gather.
func (s *simulation) run(d time.Duration) {
	end := s.now.Add(d)
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
		s.work()
	}
	s.now = end
}

// finish closes the streams, lets the runs end and checks that everything has ended and is released.
func (s *simulation) finish() {
	s.t.Helper()
	for _, f := range s.senders {
		f.stream.Close(stream.ByClient)
	}
	for s.running > 0 { // the streams of later send events are closed
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	for _, b := range s.g.intake.Drain() {
		b.FailAll(fmt.Errorf("over"))
		s.g.pool.Put(b)
	}
	ended := 0
	for _, f := range s.senders {
		f.stream.ForgetToken(s.g)
		c := f.stream.Counts()
		if c.Accepted != c.Results+c.Drops+c.Errors {
			s.t.Errorf("%+v", c)
		}
		ended += int(c.Accepted)
	}
	st := s.g.mem.Stats()
	if ended != s.frames || s.g.waiting != 0 || s.g.intake.PlacesUsed() != 0 || st.Leases != 0 ||
		s.g.pool.Free() != s.g.pool.Size() {
		s.t.Errorf("%d of %d ended, %d wait, %d places, %d leases, %d of %d batches free",
			ended, s.frames, s.g.waiting, s.g.intake.PlacesUsed(), st.Leases, s.g.pool.Free(), s.g.pool.Size())
	}
}

// jain returns Jain's index of the answers: 1 when all streams have the same number.
func jain(fs []*sender) float64 {
	var sum, squares float64
	for _, f := range fs {
		n := float64(f.stream.Counts().Results)
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (float64(len(fs)) * squares)
}

// seeds yields n seeds, or four times as many in long tests.
func seeds(n uint64) iter.Seq[uint64] {
	if !testing.Short() {
		n *= 4
	}
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(testseed.First() + i) {
				return
			}
		}
	}
}

func TestEqualStreamsGetEqualShares(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
		for _, n := range []int{1, 10, 100} {
			for seed := range seeds(1) {
				workers := 1 + int(seed%3)
				s := newSimulation(t, seed, anything, Adaptive, workers, workers+1)
				// Capacity is 4 rows in 9 ms for each worker; twice as many arrive.
				every := time.Duration(n) * 9 * time.Millisecond / time.Duration(8*workers)
				for range n {
					s.add(stream.Policy{Mode: mode, Window: 4}, every, 0)
				}
				s.run(4 * time.Second)
				if j := jain(s.senders); j < 0.95 {
					t.Errorf("%s, %d streams, seed %d: index %.3f", mode, n, seed, j)
				}
				s.finish()
			}
		}
	}
}

// After each turn, the mailboxes of the other streams stay empty for at most one interval, making a round longer,
// here by a tenth.
func TestAFastStreamGetsNoMoreThanItsShare(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
		for seed := range seeds(1) {
			s := newSimulation(t, seed, anything, Adaptive, 1, 2)
			const n = 20
			round := n / 4 * s.service(4)
			for range n - 1 {
				s.add(stream.Policy{Mode: mode, Window: 16}, round/10, 0)
			}
			fast := s.add(stream.Policy{Mode: mode, Window: 16}, round/200, 0)
			s.run(3 * time.Second)
			var all uint64
			for _, f := range s.senders {
				all += f.stream.Counts().Results
			}
			if got := fast.stream.Counts().Results; float64(got) > 1.1*float64(all)/n {
				t.Errorf("%s, seed %d: %d of %d answers, one stream of %d", mode, seed, got, all, n)
			}
			s.finish()
		}
	}
}

// besideLow simulates ten streams, which together offer a share of the capacity, beside some streams of low priority,
// each with a frame as soon as the last is answered. besideLow returns the 99th percentile of the ages of the ten
// streams' answers, and the answers a second of the streams of low priority.
func besideLow(t *testing.T, workers, low int, fixed, row time.Duration, share float64) (p99 time.Duration,
	answers int) {
	const live, seconds = 10, 8
	model := &stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 8}
	s := newSimulation(t, 1, model, Adaptive, workers, workers+1)
	s.greedy = false
	s.service = func(rows int) time.Duration { return fixed + time.Duration(rows)*row }
	if share > 0 {
		every := time.Duration(float64(s.service(8)) / 8 * live / share / float64(workers))
		for range live {
			s.add(stream.Policy{Mode: stream.Latest}, every, 0)
		}
	}
	next := map[*stream.Stream]func(){}
	for range low {
		f := &sender{}
		f.stream, f.sink = s.g.open(t, stream.Policy{Mode: stream.Every, Priority: stream.Low, Window: 1})
		s.senders = append(s.senders, f)
		submit := func() {
			s.count++
			if f.stream.SubmitAt(stream.Frame{Seq: uint64(s.count)}, s.now) == nil {
				s.frames++
			}
		}
		next[f.stream] = func() { s.at(time.Millisecond/2, submit) }
		s.at(0, submit)
	}
	var ages []time.Duration
	s.ended = func(b *Batch) {
		for _, r := range b.Requests {
			if again := next[r.Stream]; again != nil {
				answers++
				again()
			} else {
				ages = append(ages, s.now.Sub(r.Timing.Received))
			}
		}
	}
	s.run(seconds * time.Second)
	s.finish()
	if len(ages) > 0 {
		slices.Sort(ages)
		p99 = ages[len(ages)*99/100]
	}
	return p99, answers / seconds
}

// Frames of low priority, as tasks have, leave the ages of other streams' answers nearly as the ages are without
// them, and use the rest of the workers' time.
func TestLowPriorityDelaysOthersLittle(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		fixed, row time.Duration
		workers    int
		share      float64
		most       float64 // times the age without frames of low priority
		least      int     // answers of low priority a second
	}{
		{2 * ms, ms, 1, 0.5, 1.2, 40}, {2 * ms, ms, 2, 0.3, 1.2, 100}, {2 * ms, ms, 2, 0.5, 1.2, 70},
		{2 * ms, ms, 2, 0.8, 1.2, 40}, {2 * ms, ms, 4, 0.5, 1.2, 150},
		{0, 2 * ms, 2, 0.5, 1.2, 200}, {0, 2 * ms, 2, 0.8, 1.2, 100},
		{10 * ms, ms / 10, 1, 0.5, 1.05, 150}, {10 * ms, ms / 10, 2, 0.3, 1.05, 220},
		{10 * ms, ms / 10, 4, 0.8, 1.05, 220},
	} {
		without, _ := besideLow(t, c.workers, 0, c.fixed, c.row, c.share)
		with, answers := besideLow(t, c.workers, 4, c.fixed, c.row, c.share)
		ratio := with.Seconds() / without.Seconds()
		t.Logf("%v + %v a row, %d workers, share %.1f: p99 %v, beside low priority %v (%.2f), %d/s of low priority",
			c.fixed, c.row, c.workers, c.share, without, with, ratio, answers)
		if ratio > c.most || answers < c.least {
			t.Errorf("want at most %.2f times the age, and at least %d answers a second", c.most, c.least)
		}
	}
}

// Without other frames, and soon after the last of them, frames of low priority use all workers.
func TestLowPriorityUsesIdleWorkers(t *testing.T) {
	if _, answers := besideLow(t, 4, 4, 10*time.Millisecond, 0, 0); answers < 4*90 {
		t.Errorf("%d answers a second of 4 workers that take 10 ms", answers)
	}
	// Batches of low priority are as large as batches of other priorities.
	if _, answers := besideLow(t, 1, 8, 20*time.Millisecond, time.Millisecond/10, 0); answers < 180 {
		t.Errorf("%d answers a second of a worker that takes 20 ms, and 0.1 ms a row", answers)
	}
	s := newSimulation(t, 1, anything, Adaptive, 2, 3)
	s.greedy = false
	open := func(p stream.Priority) *stream.Stream {
		st, _ := s.g.open(t, stream.Policy{Mode: stream.Every, Priority: p, Window: 8})
		return st
	}
	low, high := open(stream.Low), open(stream.High)
	send := func(st *stream.Stream) {
		if err := st.SubmitAt(stream.Frame{}, s.now); err != nil {
			t.Fatal(err)
		}
	}
	started := func(idle int) (n int, wait time.Duration) {
		s.g.intake.SetFree(idle, 2)
		b, wait, err := s.g.intake.Gather(s.now, idle, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b != nil {
			n = b.Rows
			s.g.run(b)
		}
		return n, wait
	}
	send(high)
	if n, _ := started(1); n != 1 {
		t.Fatalf("%d rows of high priority run on the last idle worker", n)
	}
	send(low)
	s.now = s.now.Add(keepFor / 4)
	if n, wait := started(1); n != 0 || wait != keepFor*3/4 {
		t.Errorf("%d rows of low priority run on the last idle worker soon after a frame of high priority; wait %v", n,
			wait)
	}
	if n, _ := started(2); n != 1 {
		t.Errorf("%d rows of low priority run while two workers are idle", n)
	}
	send(low)
	s.now = s.now.Add(keepFor)
	if n, _ := started(1); n != 1 {
		t.Errorf("%d rows of low priority run on the last idle worker after %v", n, keepFor)
	}
	// A worker that is still running another batch takes no full batch of low priority ahead.
	send(high)
	if n, _ := started(1); n != 1 {
		t.Fatalf("%d rows", n)
	}
	for range 4 {
		send(low)
	}
	if b, err := s.g.intake.GatherFull(s.now, nil, true); b != nil || err != nil {
		t.Errorf("a batch of low priority ahead, soon after a frame of high priority; error %v", err)
	}
	s.now = s.now.Add(keepFor)
	if b, err := s.g.intake.GatherFull(s.now, nil, true); b == nil || err != nil {
		t.Errorf("no full batch of low priority later; error %v", err)
	} else {
		s.g.run(b)
	}
	low.Close(stream.ByClient)
	high.Close(stream.ByClient)
}

// A request of low priority with many rows joins a batch only if the batch takes at most a tenth longer.
func TestRowsOfLowPriority(t *testing.T) {
	g := newGroup(t, bytesModel(8, 1), Adaptive, 2, 16)
	for n, took := range []time.Duration{0, 10, 10, 80, 80, 80, 80, 80, 80} {
		g.intake.Observe(1, n, took*time.Millisecond)
	}
	low, _ := g.open(t, stream.Policy{Mode: stream.Every, Priority: stream.Low, Window: 8})
	high, _ := g.open(t, stream.Policy{Mode: stream.Every, Window: 8})
	for _, c := range []struct{ rows, want int }{{7, 1}, {1, 2}} {
		if err := low.SubmitAt(rows(g.mem, 0, 1, c.rows, 1), 2); err != nil {
			t.Fatal(err)
		}
		if err := high.SubmitAt(rows(g.mem, 0, 1, 1, 1), 2); err != nil {
			t.Fatal(err)
		}
		g.run(g.gather(t, 2, c.want))
		if c.want == 1 {
			g.run(g.gather(t, 2, c.rows))
		}
	}
}

func TestLatestIsFresh(t *testing.T) {
	for seed := range seeds(1) {
		s := newSimulation(t, seed, anything, Adaptive, 2, 3)
		every := 33 * time.Millisecond
		for range 100 { // about four times the capacity
			s.add(stream.Policy{Mode: stream.Latest}, every, 0)
		}
		s.run(2 * time.Second)
		limit := every*11/10 + s.service(s.g.model.MaxBatch)
		for i, f := range s.senders {
			for _, age := range f.sink.ages {
				if time.Duration(age) > limit {
					t.Fatalf("seed %d, stream %d: a frame was bound at the age of %v, limit %v", seed, i,
						time.Duration(age), limit)
				}
			}
		}
		s.finish()
	}
}

// For all streams, limits, shapes and run times: no token is lost and everything ends
// once.
func TestNothingIsLost(t *testing.T) {
	kinds := Kinds()
	for seed := range seeds(20 * uint64(len(kinds))) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := anything
		switch r.IntN(3) {
		case 1:
			m = bytesModel(4, -1)
		case 2:
			m = &stream.Model{Name: "s", AcceptsAnyInput: true, Ragged: true, Stateful: true, MaxBatch: 4}
		}
		kind := kinds[r.IntN(len(kinds))].Name
		workers := 1 + r.IntN(3)
		s := newSimulation(t, seed, m, kind, workers, 1+r.IntN(workers+1))
		s.service = func(int) time.Duration { return time.Duration(1+r.IntN(20)) * time.Millisecond }
		for range 1 + r.IntN(12) {
			p := stream.Policy{
				Mode: []stream.Mode{stream.Latest, stream.Every}[r.IntN(2)], Window: 1 + r.IntN(4),
				Priority: stream.Priority(r.IntN(3)),
				MaxAge:   time.Duration(r.IntN(3)*15) * time.Millisecond,
			}
			shape := 0
			if m.Inputs != nil {
				shape = 1 + r.IntN(3)
			}
			f := s.add(p, time.Duration(1+r.IntN(50))*time.Millisecond, shape)
			if r.IntN(3) == 0 {
				s.at(time.Duration(r.IntN(900))*time.Millisecond, func() { f.stream.Close(stream.ClientGone) })
			}
		}
		s.run(time.Second)
		if !s.g.intake.needs.Full && m.Inputs == nil {
			for i, f := range s.senders {
				if c := f.stream.Counts(); c.Results == 0 && f.stream.Policy().MaxAge == 0 && c.Accepted > 20 {
					t.Errorf("seed %d: stream %d of priority %d had no answer: %+v", seed, i,
						f.stream.Policy().Priority, c)
				}
			}
		}
		s.finish()
		if t.Failed() {
			t.Fatalf("seed %d, %s, %d workers", seed, kind, workers)
		}
	}
}

func TestSoftKeepsItsDelay(t *testing.T) {
	for seed := range seeds(1) {
		s := newSimulation(t, seed, anything, Soft, 8, 16) // a worker is always idle
		s.service = func(int) time.Duration { return time.Millisecond }
		for range 6 {
			s.add(stream.Policy{Mode: stream.Every}, 23*time.Millisecond, 0)
		}
		s.run(3 * time.Second)
		batches := 0
		for _, f := range s.senders {
			for _, age := range f.sink.ages {
				batches++
				if time.Duration(age) > softDelay {
					t.Fatalf("seed %d: bound after %v", seed, time.Duration(age))
				}
			}
		}
		if batches == 0 {
			t.Fatal("nothing was answered")
		}
		s.finish()
	}
}

// The batcher deadline never makes a frame late that would have been in time, for streams with one or several shapes,
// and for any number of workers. Its batches are larger than adaptive's.
func TestDeadlineMakesNothingLate(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
		for _, shapes := range []int{1, 3} {
			for seed := range seeds(3) {
				m := bytesModel(8, -1)
				workers := 1 + int(seed%3)
				mean := map[string]float64{}
				for _, kind := range []string{Adaptive, Deadline} {
					s := newSimulation(t, seed, m, kind, workers, workers+1)
					s.service = linear
					for i := range 6 * workers {
						limit := time.Duration(30+s.rand.IntN(100)) * time.Millisecond
						s.add(stream.Policy{Mode: mode, Window: 4, MaxAge: limit}, 60*time.Millisecond, 1+i%shapes)
					}
					s.run(3 * time.Second)
					mean[kind] = float64(s.rows) / float64(s.runs)
					s.finish()
					for _, f := range s.senders {
						for _, seq := range f.sink.stale {
							if s.passed[seq] {
								s.late++
							}
						}
					}
					if s.late > 0 {
						t.Errorf("%s, %d shapes, seed %d: %d frames were late because %s waited", mode, shapes, seed,
							s.late, kind)
					}
					if kind == Deadline && s.waits < 50 {
						t.Errorf("%s, %d shapes, seed %d: it waited with %d frames only", mode, shapes, seed, s.waits)
					}
				}
				t.Logf("%s, %d shapes, %d workers: rows a batch %.2f, with adaptive %.2f", mode, shapes, workers,
					mean[Deadline], mean[Adaptive])
				if shapes == 1 && mean[Deadline] < 1.5*mean[Adaptive] {
					t.Errorf("%s, seed %d: %.2f rows a batch, with adaptive %.2f", mode, seed, mean[Deadline],
						mean[Adaptive])
				}
			}
		}
	}
}

func TestHardBatchesAreFull(t *testing.T) {
	for seed := range seeds(1) {
		s := newSimulation(t, seed, anything, Hard, 2, 3)
		full := 0
		s.service = func(rows int) time.Duration {
			if rows != s.g.model.MaxBatch {
				t.Fatalf("seed %d: %d rows", seed, rows)
			}
			full++
			return 5 * time.Millisecond
		}
		for range 7 {
			s.add(stream.Policy{Mode: stream.Latest, MaxAge: 30 * time.Millisecond}, 20*time.Millisecond, 0)
		}
		s.run(2 * time.Second)
		if full < 100 {
			t.Fatalf("%d batches", full)
		}
		s.finish()
	}
}

func TestLowPrioritiesDoNotStarve(t *testing.T) {
	for seed := range seeds(1) {
		s := newSimulation(t, seed, anything, Adaptive, 1, 2)
		for i := range 40 {
			s.add(stream.Policy{Mode: stream.Every, Priority: []stream.Priority{stream.High, stream.Normal, stream.Low,
				stream.High}[i%4]}, 10*time.Millisecond, 0)
		}
		s.run(3 * time.Second)
		var sum [stream.Priorities]uint64
		for i, f := range s.senders {
			c := f.stream.Counts().Results
			sum[f.stream.Policy().Priority] += c
			if f.stream.Policy().Priority != stream.Normal && c == 0 {
				t.Errorf("seed %d: stream %d was never served", seed, i)
			}
		}
		if sum[stream.High] < 4*sum[stream.Low] || sum[stream.Low] == 0 {
			t.Errorf("seed %d: %v answers", seed, sum)
		}
		s.finish()
	}
}
