package v1

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever sessions keep, forget and leave: what is counted is what is there, never
// more than may be, and of each stream the newest, as they were written.
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

// A session that keeps large endings leaves room for others' and for its own small
// ones, and gives it up again when others come.
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

func TestReplayAllocates(t *testing.T) {
	for _, n := range []int{500, 100_000} { // the second gives way all the time
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
