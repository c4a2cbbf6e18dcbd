package stream_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"millrace/stream"
)

// behind returns two running frames of a stream; the second frame was bound later than the first by gap.
func behind(t *testing.T, gap time.Duration) (b *bench, first, second *stream.Request) {
	b = newBench(anything, every)
	_ = b.offer()
	_ = b.offer()
	first = b.take(t)
	b.now = b.now.Add(gap)
	return b, first, b.take(t)
}

// emit emits n partial results, and reports whether all were taken.
func (b *bench) emit(r *stream.Request, n int) bool {
	for range n {
		l, _ := b.mem.Copy([]byte("part"))
		if !r.Emit([]stream.Tensor{{Name: "y", Data: l.Bytes()}}, l) {
			return false
		}
	}
	return true
}

func parts(seq, n int) []string { return slices.Repeat([]string{fmt.Sprint(seq, " part")}, n) }

// A worker waits for its frame's turn when MaxEarly partial results are waiting behind an unfinished frame.
func TestPartialResultsBeforeTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, first, second := behind(t, 1)
		all := make(chan bool, 1)
		go func() { all <- b.emit(second, 3*stream.MaxEarly) }()
		synctest.Wait()
		if n := b.mem.Stats().Leases; n != stream.MaxEarly+1+2 { // the waiting partial result, and the frames
			t.Errorf("%d leases", n)
		}
		b.check(t)
		b.emit(first, 2)
		answer(b.mem, first)
		if !<-all {
			t.Error("ended")
		}
		answer(b.mem, second)
		b.check(t, slices.Concat(parts(0, 2), []string{"0 result"}, parts(1, 3*stream.MaxEarly),
			[]string{"1 result"})...)
		b.end(t, first, second)
	})
}

// When the older frame does not end, the frame behind ends as refused by flow control, at once when the waiting
// worker also runs the older frame.
func TestTooManyPartialResultsBeforeTheirTurn(t *testing.T) {
	for name, gap := range map[string]time.Duration{"another batch": 1, "the same batch": 0} {
		synctest.Test(t, func(t *testing.T) {
			b, first, second := behind(t, gap)
			began := time.Now()
			if b.emit(second, 3*stream.MaxEarly) {
				t.Errorf("%s: all were taken", name)
			}
			if waited := time.Since(began); (waited > 0) != (gap > 0) || waited > time.Minute {
				t.Errorf("%s: waited for %v", name, waited)
			}
			answer(b.mem, first)
			b.check(t, slices.Concat([]string{"0 result"}, parts(1, stream.MaxEarly),
				[]string{"1 error flow_control"})...)
			b.end(t, first, second)
		})
	}
}

// A worker waiting for the turn of a frame continues when the frame is abandoned.
func TestGivenUpBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, first, second := behind(t, 1)
		all := make(chan bool, 1)
		go func() { all <- b.emit(second, 3*stream.MaxEarly) }()
		synctest.Wait()
		b.Abandon(stream.Errorf(stream.Canceled, "", "gone"))
		if <-all {
			t.Error("all were taken")
		}
		b.end(t, first, second)
	})
}

// end ends the runs and the stream.
func (b *bench) end(t *testing.T, rs ...*stream.Request) {
	for _, r := range rs {
		r.Unbind()
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}
