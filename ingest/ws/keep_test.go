package ws

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever sessions keep, forget and leave: what is counted is what is there, never
// more than may be, and of each stream the newest, as they were written.
func TestKeeper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &store{most: 1 << 20}
		type session struct {
			*keeper
			streams []*channel
		}
		begin := func() *session {
			one := &session{keeper: newKeeper(s)}
			for range 3 {
				one.streams = append(one.streams, &channel{keeps: rapid.IntRange(leastKept, 8).Draw(t, "keeps")})
			}
			return one
		}
		all := []*session{begin(), begin(), begin()}
		length := rapid.OneOf(rapid.IntRange(0, smallEnding), rapid.IntRange(0, mostKeptSize+1))
		wrote := map[*channel][]kept{}
		for seq := range uint64(rapid.IntRange(1, 100).Draw(t, "steps")) {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "session")
			one := all[i]
			c := one.streams[rapid.IntRange(0, len(one.streams)-1).Draw(t, "stream")]
			switch rapid.IntRange(0, 30).Draw(t, "step") {
			case 0:
				one.forget(c)
			case 1:
				one.close()
				one.keep(c, seq, []byte("late"), false)
				one.forget(c)
				all[i] = begin()
			default:
				msg := bytes.Repeat([]byte{byte(seq)}, length.Draw(t, "bytes"))
				one.keep(c, seq, msg, seq%2 == 0)
				if len(msg) <= mostKeptSize {
					wrote[c] = append(wrote[c], kept{seq: seq, msg: msg, binary: seq%2 == 0})
				}
			}
			total := int64(0)
			for _, one := range all {
				mine, large := int64(0), int64(0)
				for _, c := range one.streams {
					for _, e := range one.missed(c, math.MaxUint64) {
						mine += int64(cap(e.msg))
						if !e.small() {
							large += int64(cap(e.msg))
						}
						same := func(w kept) bool {
							return w.seq == e.seq && w.binary == e.binary && bytes.Equal(w.msg, e.msg)
						}
						if i := slices.IndexFunc(wrote[c], same); i < len(wrote[c])-c.keeps || i < 0 {
							t.Fatalf("kept what was not written of late: seq %d, %d bytes", e.seq, len(e.msg))
						}
					}
				}
				if mine != one.bytes || large != one.large {
					t.Fatalf("%d bytes and %d of large ones, counted %d and %d", mine, large, one.bytes, one.large)
				}
				total += mine
			}
			if used := s.used.Load(); used != total || used > s.most {
				t.Fatalf("%d bytes are kept, counted %d of %d", total, used, s.most)
			}
		}
	})
}

// A session that keeps large endings leaves room for others' and for its own small
// ones, and gives it up again when others come.
func TestKeeperShares(t *testing.T) {
	s := &store{most: 4 << 20}
	fill := func(k *keeper) {
		c := &channel{keeps: mostKept}
		for seq := range uint64(2 * mostKept) {
			k.keep(c, seq, make([]byte, 200_000), true)
		}
	}
	greedy, small := newKeeper(s), &channel{keeps: leastKept}
	greedy.keep(small, 7, []byte("a small one"), false)
	fill(greedy)
	if n := greedy.bytes; n < 1<<20 || n > 3<<19 {
		t.Errorf("one session keeps %d bytes", n)
	}
	if got := greedy.missed(small, math.MaxUint64); len(got) != 1 || string(got[0].msg) != "a small one" {
		t.Errorf("of the small ones there are %d", len(got))
	}
	alone := greedy.bytes
	for i := range 6 {
		k := newKeeper(s)
		fill(k)
		if i == 0 && k.bytes < alone/3 {
			t.Errorf("the second session keeps %d bytes, the first %d", k.bytes, alone)
		}
	}
	late, c := newKeeper(s), &channel{keeps: mostKept}
	for seq := range uint64(mostKept) {
		late.keep(c, seq, make([]byte, 1000), false)
	}
	if n := len(late.missed(c, math.MaxUint64)); n != mostKept {
		t.Errorf("%d small endings are kept", n)
	}
	fill(greedy)
	if greedy.bytes > alone*2/3 {
		t.Errorf("the first session still keeps %d bytes of %d", greedy.bytes, alone)
	}
}

func TestKeeperAllocates(t *testing.T) {
	for _, n := range []int{500, 100_000} { // the second gives way all the time
		k, seq := newKeeper(&store{most: 1 << 20}), uint64(0)
		streams := []*channel{{keeps: mostKept}, {keeps: mostKept}}
		msg := make([]byte, n)
		step := func() {
			for _, c := range streams {
				seq++
				k.keep(c, seq, msg, true)
			}
		}
		for range mostKept {
			step()
		}
		if a := testing.AllocsPerRun(100, step); a > 0 {
			t.Errorf("%v allocations for endings of %d bytes", a, n)
		}
	}
}
