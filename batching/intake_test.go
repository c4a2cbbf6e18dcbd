package batching

import (
	"fmt"
	"testing"
	"time"

	"millrace/stream"
)

const (
	softDelay     = 10 * time.Millisecond
	deadlineSlack = 2 * time.Millisecond
)

var anything = &stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}

func offer(t testing.TB, s *stream.Stream, at stream.Instant) {
	t.Helper()
	if err := s.SubmitAt(stream.Frame{}, at); err != nil {
		t.Fatal(err)
	}
}

// gather fails unless Gather forms a batch of want rows, or no batch when want is 0.
func (g *group) gather(t testing.TB, now stream.Instant, want int) *Batch {
	t.Helper()
	b, _, err := g.intake.Gather(now, 1, nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case b == nil && want > 0:
		t.Fatalf("no batch, want one of %d rows", want)
	case b != nil && b.Rows != want:
		t.Fatalf("%d rows, want %d", b.Rows, want)
	}
	return b
}

func (g *group) run(b *Batch) {
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{{Name: "y", Data: []byte("ok")}})
	}
	g.pool.Put(b)
}

func TestQueueRefusesAtItsBound(t *testing.T) {
	g := newGroup(t, anything, Adaptive, 1, 3)
	for range 3 {
		g.open(t, window)
	}
	if err := g.intake.Reserve(); stream.CodeOf(err) != stream.Overloaded || g.intake.PlacesUsed() != 3 {
		t.Fatalf("%v, %d places", err, g.intake.PlacesUsed())
	}
}

// Streams that open and close while no worker gathers must not fill the queue beyond the bound: a place stays taken
// until the token is removed.
func TestTokensOfClosedStreamsKeepTheirPlaces(t *testing.T) {
	for _, k := range Kinds() {
		kind := k.Name
		g := newGroup(t, anything, kind, 1, 4)
		opened := 0
		for range 100 {
			if g.intake.Reserve() != nil {
				break
			}
			g.intake.Unreserve()
			s, _ := g.open(t, window)
			opened++
			offer(t, s, 1)
			s.Close(stream.ClientGone)
		}
		if opened != 4 || g.intake.PlacesUsed() != 4 {
			t.Fatalf("%s: %d opened, %d places", kind, opened, g.intake.PlacesUsed())
		}
		g.gather(t, 2, 0)
		if g.intake.PlacesUsed() != 0 || g.detached != 4 {
			t.Fatalf("%s: %d places, %d detached", kind, g.intake.PlacesUsed(), g.detached)
		}
	}
}

// Sweep frees the places of closed streams also without a worker, and keeps the order of other tokens.
func TestSweep(t *testing.T) {
	for _, k := range Kinds() {
		for _, pending := range []bool{false, true} {
			g := newGroup(t, anything, k.Name, 4, 8)
			inbox := g.intake.NewInbox()
			var kept []*stream.Stream
			for i := range 8 {
				s, _ := g.open(t, window)
				if i%4 == 3 {
					s.SetAffinity(g, inbox)
				}
				offer(t, s, 1)
				if i%2 == 0 {
					kept = append(kept, s)
				} else {
					s.Close(stream.ClientGone)
				}
			}
			if pending {
				g.intake.fill(g.intake.common)
				g.intake.fill(inbox)
			}
			g.intake.Sweep(g, inbox)
			if g.intake.PlacesUsed() != len(kept) || g.detached != 4 {
				t.Errorf("%s: %d places, %d detached", k.Name, g.intake.PlacesUsed(), g.detached)
			}
			b := g.gather(t, 1<<40, len(kept))
			for i, s := range kept {
				if b.Requests[i].Stream != s {
					t.Errorf("%s: another stream is at %d", k.Name, i)
				}
			}
			g.run(b)
		}
	}
}

func TestLargeRequestsAreNotPassedOver(t *testing.T) {
	g := newGroup(t, bytesModel(4, 2), Adaptive, 1, 64)
	large, k := g.open(t, window)
	var small []*stream.Stream
	for range 5 {
		s, _ := g.open(t, window)
		small = append(small, s)
	}
	for i := range 20 {
		for _, s := range small {
			_ = s.SubmitAt(rows(g.mem, i, 1, 1, 2), 1)
		}
		_ = large.SubmitAt(rows(g.mem, i, 2, 4, 2), 1)
	}
	for range 10 {
		b, _, _ := g.intake.Gather(2, 1, nil)
		b.Prepare(nil)
		echo(b)
		g.pool.Put(b)
	}
	if n := len(k.results); n < 2 {
		t.Fatalf("four rows at once: %d answers in ten batches", n)
	}
}

func TestPrioritiesAreKeptWhileManyWait(t *testing.T) {
	g := newGroup(t, anything, Adaptive, 1, 256)
	var low, high []*sink
	for i := range 104 {
		p := stream.Policy{Mode: stream.Every, Window: 256, Priority: stream.Low}
		if i%26 == 25 {
			p.Priority = stream.High
		}
		s, k := g.open(t, p)
		if p.Priority == stream.High {
			high = append(high, k)
		} else {
			low = append(low, k)
		}
		for range 100 {
			offer(t, s, 1)
		}
	}
	for range 80 {
		g.run(g.gather(t, 2, 4))
	}
	n := func(ks []*sink) (sum int) {
		for _, k := range ks {
			sum += len(k.results)
		}
		return sum
	}
	// Of 320 places every eighth batch, 40, serves low priority.
	if h, l := n(high), n(low); h != 280 || l != 40 {
		t.Fatalf("%d high, %d low", h, l)
	}
}

func TestClassesDoNotShareBatchesAndNoneStarves(t *testing.T) {
	g := newGroup(t, bytesModel(4, -1), Adaptive, 2, 256)
	var sinks []*sink
	var streams []*stream.Stream
	size := func(i int) int { // most are of one class
		if i < 20 {
			return 1
		}
		return 2 + i%3
	}
	for range 26 {
		s, k := g.open(t, window)
		streams, sinks = append(streams, s), append(sinks, k)
	}
	refill := func() {
		for i, s := range streams {
			for s.WaitingFrames() < 2 {
				_ = s.SubmitAt(rows(g.mem, 0, 1, 1, size(i)), 1)
			}
		}
	}
	for range 60 {
		refill()
		b, _, _ := g.intake.Gather(2, 1, nil)
		for _, r := range b.Requests {
			if r.Class != b.Requests[0].Class {
				t.Fatal("two classes in one batch")
			}
		}
		b.Prepare(nil)
		echo(b)
		g.pool.Put(b)
	}
	least, most := 1000, 0
	for _, k := range sinks {
		least, most = min(least, len(k.results)), max(most, len(k.results))
	}
	if least < 5 || most > 2*least {
		t.Fatalf("between %d and %d answers", least, most)
	}
}

func TestHardWaitsForRowsNotFrames(t *testing.T) {
	g := newGroup(t, bytesModel(4, 2), Hard, 2, 8)
	s, _ := g.open(t, window)
	_ = s.SubmitAt(rows(g.mem, 0, 1, 3, 2), 1)
	g.gather(t, 2, 0)
	_ = s.SubmitAt(rows(g.mem, 1, 1, 1, 2), 1)
	g.gather(t, 3, 4)
}

func TestHardRunsTheOldestPartialBatchWhenNoneIsFree(t *testing.T) {
	g := newGroup(t, bytesModel(4, -1), Hard, 2, 16)
	frame := func(d, n int) {
		s, _ := g.open(t, stream.Policy{Mode: stream.Every, MaxAge: time.Millisecond})
		_ = s.SubmitAt(rows(g.mem, 0, 1, n, d), epoch+1)
		// Stale frames make a batch look full until binding.
		for range 4 - n {
			late, _ := g.open(t, stream.Policy{Mode: stream.Every, MaxAge: 1})
			_ = late.SubmitAt(rows(g.mem, 0, 1, 1, d), epoch+1)
		}
	}
	frame(1, 2)
	g.gather(t, epoch+100, 0)
	frame(2, 3)
	g.gather(t, epoch+200, 0)
	if g.pool.Free() != 0 {
		t.Fatalf("%d batches are free", g.pool.Free())
	}
	frame(3, 1)
	b := g.gather(t, epoch+300, 2) // the first batch
	b.FailAll(fmt.Errorf("enough"))
	g.pool.Put(b)
	g.gather(t, epoch+400, 0) // the third has a batch now
	if n := len(g.intake.Drain()); n != 2 {
		t.Fatalf("%d partial batches are left", n)
	}
}

// When the table is out of date, one frame is bound without a check of its deadline; later frames are checked.
func TestOldTableIsIgnoredForOneFrame(t *testing.T) {
	for _, want := range [][]string{{"ok", "stale", "stale"}, {"ok"}} {
		g := newGroup(t, anything, Adaptive, 1, 16)
		g.intake.Observe(epoch, 4, 50*time.Millisecond)
		later := epoch.Add(2 * probeAfter)
		var sinks []*sink
		for range want {
			s, k := g.open(t, stream.Policy{Mode: stream.Every, MaxAge: 20 * time.Millisecond})
			offer(t, s, later)
			sinks = append(sinks, k)
		}
		g.run(g.gather(t, later, 1))
		g.intake.Observe(later, 1, time.Millisecond) // only one run was slow
		for i := range want {
			if got := sinks[i].results; len(got) != 1 || got[0] != want[i] {
				t.Errorf("stream %d: %v, want %s", i, got, want[i])
			}
		}
		s, _ := g.open(t, stream.Policy{Mode: stream.Every, MaxAge: 20 * time.Millisecond})
		offer(t, s, later)
		g.run(g.gather(t, later, 1))
	}
}

// A superseded frame's deadline still counts when the newer frame has a later deadline: otherwise the token could
// wait for ever.
func TestDeadlineOfASupersededFrameCounts(t *testing.T) {
	const ms = time.Millisecond
	g := newGroup(t, anything, Deadline, 1, 16)
	at := func(d time.Duration) stream.Instant { return epoch.Add(d) }
	g.intake.Observe(at(0), 4, 10*ms)
	s, _ := g.open(t, stream.Policy{Mode: stream.Latest, MaxAge: 50 * ms})
	for d := 0 * ms; d < 38*ms; d += 10 * ms {
		offer(t, s, at(d))
		b, wait, _ := g.intake.Gather(at(d), 1, nil)
		if b != nil || wait != 38*ms-d { // 50 - 10 - slack after the first frame
			t.Fatalf("%v after %v: wait %v", b, d, wait)
		}
	}
	g.run(g.gather(t, at(38*ms), 1))
}

// A waiting frame may have a nearer deadline than an earlier frame.
func TestDeadlineOfAFrameAfterAnother(t *testing.T) {
	const ms = time.Millisecond
	g := newGroup(t, anything, Deadline, 1, 16)
	now := epoch
	g.intake.Observe(now, 4, 10*ms)
	s, _ := g.open(t, window)
	for _, d := range []time.Duration{100 * ms, 60 * ms, 80 * ms} {
		if err := s.SubmitAt(stream.Frame{Deadline: d}, now); err != nil {
			t.Fatal(err)
		}
	}
	if b, wait, _ := g.intake.Gather(now, 1, nil); b != nil || wait != 48*ms {
		t.Fatalf("%v, wait %v", b, wait)
	}
}

// Soft counts its delay from the arrival of a frame, not from the first gathering or from the last batch.
func TestSoftCountsFromTheFrame(t *testing.T) {
	g := newGroup(t, anything, Soft, 2, 16)
	at := func(d time.Duration) stream.Instant { return epoch.Add(d) }
	s, _ := g.open(t, window)
	offer(t, s, at(0))
	if _, wait, _ := g.intake.Gather(at(3*time.Millisecond), 1, nil); wait != 7*time.Millisecond {
		t.Fatalf("wait %v", wait)
	}
	for i := range 4 {
		s, _ := g.open(t, window)
		offer(t, s, at(time.Duration(5+i)*time.Millisecond))
	}
	g.run(g.gather(t, at(9*time.Millisecond), 4)) // full
	b, wait, _ := g.intake.Gather(at(9*time.Millisecond), 1, nil)
	if b != nil || wait != 9*time.Millisecond {
		t.Fatalf("%v, wait %v: the fifth arrived at 8ms", b, wait)
	}
	g.run(g.gather(t, at(18*time.Millisecond), 1))
	offer(t, s, at(20*time.Millisecond))
	g.run(g.gather(t, at(40*time.Millisecond), 1)) // no worker was free before
}

func TestInboxes(t *testing.T) {
	m := &stream.Model{Name: "a", AcceptsAnyInput: true, Ragged: true, Stateful: true, Affinity: true, MaxBatch: 2}
	g := newGroup(t, m, Adaptive, 4, 64)
	mine, other := g.intake.NewInbox(), g.intake.NewInbox()
	var sinks []*sink
	for i := range 6 {
		s, k := g.open(t, window)
		s.SetAffinity(g, map[bool]*Inbox{true: mine, false: other}[i%2 == 0])
		for range 10 {
			offer(t, s, 1)
		}
		sinks = append(sinks, k)
	}
	fresh, k := g.open(t, window)
	offer(t, fresh, 1)
	for range 6 {
		b, _, _ := g.intake.Gather(2, 3, mine)
		g.run(b)
	}
	for i, k := range sinks {
		if i%2 == 1 && len(k.results) > 0 {
			t.Fatal("took from the inbox of another worker")
		}
	}
	if len(k.results) != 1 {
		t.Fatal("streams of the own inbox starve the new one")
	}
	g.intake.Redistribute(mine)
	g.intake.Redistribute(other)
	for range 40 {
		if b, _, _ := g.intake.Gather(2, 1, nil); b != nil {
			for _, r := range b.Requests {
				r.Stream.SetAffinity(g, nil)
			}
			g.run(b)
		}
	}
	for i, k := range sinks {
		if len(k.results) != 10 {
			t.Errorf("stream %d: %d answers after its worker has left", i, len(k.results))
		}
	}
}

func TestRedistributeKeepsBoundFrames(t *testing.T) {
	m := bytesModel(4, 2)
	g := newGroup(t, m, Hard, 4, 64)
	inbox := g.intake.NewInbox()
	s, k := g.open(t, window)
	s.SetAffinity(g, inbox)
	late, _ := g.open(t, stream.Policy{Mode: stream.Every, MaxAge: 1})
	late.SetAffinity(g, inbox)
	_ = s.SubmitAt(rows(g.mem, 0, 1, 2, 2), epoch+1)
	_ = late.SubmitAt(rows(g.mem, 0, 1, 2, 2), epoch+1)
	if b, _, _ := g.intake.Gather(epoch+1000, 1, inbox); b != nil {
		t.Fatal("half a batch")
	}
	before := g.intake.Arrivals()
	g.intake.Redistribute(inbox)
	if g.intake.Arrivals() == before || g.intake.Idle() {
		t.Fatal("Arrivals has not changed")
	}
	b := g.gather(t, epoch+2000, 2)
	b.Prepare(nil)
	echo(b)
	g.pool.Put(b)
	if len(k.results) != 1 {
		t.Fatal("a bound frame was lost with the inbox")
	}
}
