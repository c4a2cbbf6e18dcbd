package v1

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// In any sequence of keeping and discarding, the counted bytes match the kept endings, stay within the bound, and
// each stream's newest endings are kept unchanged.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &replayMemory{max: 1 << 20}
		type session struct {
			*replayBuffer
			streams []*replayRing
		}
		begin := func() *session {
			one := &session{replayBuffer: newReplayBuffer(s)}
			for range 3 {
				one.streams = append(one.streams, &replayRing{size: rapid.IntRange(minReplay, 8).Draw(t, "size")})
			}
			return one
		}
		all := []*session{begin(), begin(), begin()}
		length := rapid.OneOf(rapid.IntRange(0, smallEnding), rapid.IntRange(0, maxReplaySize+1))
		wrote := map[*replayRing][]sentEnding{}
		for seq := range uint64(rapid.IntRange(1, 100).Draw(t, "steps")) {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "session")
			one := all[i]
			c := one.streams[rapid.IntRange(0, len(one.streams)-1).Draw(t, "stream")]
			switch rapid.IntRange(0, 30).Draw(t, "step") {
			case 0:
				one.remove(c)
			case 1:
				one.close()
				one.add(c, seq, []byte("late"), false)
				one.remove(c)
				all[i] = begin()
			default:
				msg := bytes.Repeat([]byte{byte(seq)}, length.Draw(t, "bytes"))
				one.add(c, seq, msg, seq%2 == 0)
				if len(msg) <= maxReplaySize {
					wrote[c] = append(wrote[c], sentEnding{seq: seq, msg: msg, binary: seq%2 == 0})
				}
			}
			total := int64(0)
			for _, one := range all {
				mine, large := int64(0), int64(0)
				for _, c := range one.streams {
					for _, e := range one.after(c, math.MaxUint64) {
						mine += int64(cap(e.msg))
						if !e.small() {
							large += int64(cap(e.msg))
						}
						same := func(w sentEnding) bool {
							return w.seq == e.seq && w.binary == e.binary && bytes.Equal(w.msg, e.msg)
						}
						if i := slices.IndexFunc(wrote[c], same); i < len(wrote[c])-c.size || i < 0 {
							t.Fatalf("kept what was not written of late: seq %d, %d bytes", e.seq, len(e.msg))
						}
					}
				}
				if mine != one.bytes || large != one.large {
					t.Fatalf("%d bytes and %d of large ones, counted %d and %d", mine, large, one.bytes, one.large)
				}
				total += mine
			}
			if used := s.used.Load(); used != total || used > s.max {
				t.Fatalf("%d bytes are kept, counted %d of %d", total, used, s.max)
			}
		}
	})
}

// A session with large endings leaves memory for other sessions and for its own small endings, and releases memory
// when other sessions need more.
func TestReplayShares(t *testing.T) {
	s := &replayMemory{max: 4 << 20}
	fill := func(k *replayBuffer) {
		c := &replayRing{size: maxReplay}
		for seq := range uint64(2 * maxReplay) {
			k.add(c, seq, make([]byte, 200_000), true)
		}
	}
	greedy, small := newReplayBuffer(s), &replayRing{size: minReplay}
	greedy.add(small, 7, []byte("a small one"), false)
	fill(greedy)
	if n := greedy.bytes; n < 1<<20 || n > 3<<19 {
		t.Errorf("one session keeps %d bytes", n)
	}
	if got := greedy.after(small, math.MaxUint64); len(got) != 1 || string(got[0].msg) != "a small one" {
		t.Errorf("of the small ones there are %d", len(got))
	}
	alone := greedy.bytes
	for i := range 6 {
		k := newReplayBuffer(s)
		fill(k)
		if i == 0 && k.bytes < alone/3 {
			t.Errorf("the second session keeps %d bytes, the first %d", k.bytes, alone)
		}
	}
	late, c := newReplayBuffer(s), &replayRing{size: maxReplay}
	for seq := range uint64(maxReplay) {
		late.add(c, seq, make([]byte, 1000), false)
	}
	if n := len(late.after(c, math.MaxUint64)); n != maxReplay {
		t.Errorf("%d small endings are kept", n)
	}
	fill(greedy)
	if greedy.bytes > alone*2/3 {
		t.Errorf("the first session still keeps %d bytes of %d", greedy.bytes, alone)
	}
}

// TestReplayBounds checks the bounds of kept endings to the byte.
func TestReplayBounds(t *testing.T) {
	for n, small := range map[int]bool{smallEnding: true, smallEnding + 1: false} {
		e, m := sentEnding{msg: make([]byte, 0, n)}, replayMemory{max: 1000}
		if e.small() != small || (m.free(n) == 1000) != small {
			t.Errorf("an ending of %d bytes: small %v, %d bytes are free for it", n, e.small(), m.free(n))
		}
	}
	for n, kept := range map[int]bool{maxReplaySize: true, maxReplaySize + 1: false} {
		b, c := newReplayBuffer(&replayMemory{max: 4 << 20}), &replayRing{size: minReplay}
		b.add(c, 1, make([]byte, n), true)
		if (len(b.after(c, 0)) == 1) != kept {
			t.Errorf("of %d bytes %d endings are kept", n, len(b.after(c, 0)))
		}
	}
	for _, c := range []struct{ cap, n, kept int }{
		{99, 100, 0}, {100, 100, 100}, {smallEnding, 1, smallEnding}, {smallEnding + 1, 1, 0}, {10_000, 5000, 10_000},
		{10_001, 5000, 0},
	} {
		if got := cap(reusable(make([]byte, c.cap), c.n)); got != c.kept {
			t.Errorf("of memory of %d bytes %d are used for %d", c.cap, got, c.n)
		}
	}

	// A session may use as much as remains for others: two endings of 90 bytes (80, and an eighth for longer
	// endings), or none.
	for most, kept := range map[int64]int{180: 1, 179: 0} {
		b, c := newReplayBuffer(&replayMemory{max: most}), &replayRing{size: minReplay}
		b.add(c, 1, make([]byte, 80), false)
		if got := b.after(c, 0); len(got) != kept || kept == 1 && cap(got[0].msg) != 90 {
			t.Errorf("%d endings are kept in %d bytes", len(got), most)
		}
	}
	// Large endings may use three quarters, and are discarded no earlier than necessary.
	for most, kept := range map[int64]int{48_000: 2, 47_996: 1} {
		b, c := newReplayBuffer(&replayMemory{max: most}), &replayRing{size: minReplay}
		b.add(c, 1, make([]byte, 8000), false)
		b.add(c, 2, make([]byte, 8000), false)
		if got := b.after(c, 0); len(got) != kept || got[kept-1].seq != 2 {
			t.Errorf("%d endings are kept in %d bytes", len(got), most)
		}
	}
}

// When other sessions have taken all memory, a small ending still replaces the stream's oldest ending, if the memory
// of the oldest suffices.
func TestReplayInPlace(t *testing.T) {
	for _, n := range []int{1, 90} {
		m := &replayMemory{max: 10_000}
		b, c := newReplayBuffer(m), &replayRing{size: minReplay}
		for seq := range uint64(minReplay) {
			b.add(c, seq, make([]byte, 80), false)
		}
		m.used.Store(m.max)
		b.add(c, minReplay, make([]byte, n), false)
		if got := b.after(c, math.MaxUint64); len(got) != minReplay || got[minReplay-1].seq != minReplay ||
			len(got[minReplay-1].msg) != n {
			t.Errorf("%d bytes: %d endings, the newest of frame %d", n, len(got), got[len(got)-1].seq)
		}
	}
	// A replaced large ending is the newest again.
	b := newReplayBuffer(&replayMemory{max: 1 << 20})
	one, other := &replayRing{size: 1}, &replayRing{size: 1}
	b.add(one, 1, make([]byte, 8000), false)
	b.add(other, 1, make([]byte, 8000), false)
	b.add(one, 2, make([]byte, 8000), false)
	if b.order.newer != &other.all[0] {
		t.Error("the order is not that of the endings")
	}
}

func TestReplayAllocates(t *testing.T) {
	for _, n := range []int{500, 100_000} { // each ending of 100,000 bytes displaces an older ending
		k, seq := newReplayBuffer(&replayMemory{max: 1 << 20}), uint64(0)
		streams := []*replayRing{{size: maxReplay}, {size: maxReplay}}
		msg := make([]byte, n)
		step := func() {
			for _, c := range streams {
				seq++
				k.add(c, seq, msg, true)
			}
		}
		for range maxReplay {
			step()
		}
		if a := testing.AllocsPerRun(100, step); a > 0 {
			t.Errorf("%v allocations for endings of %d bytes", a, n)
		}
	}
}
