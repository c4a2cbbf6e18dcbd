package client

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/wire"
	"millrace/stream"
)

// TestSettle has a server of few words end frames in any order, tell them alone,
// in ranges or not at all, and connections lose what they like: each frame ends
// exactly once, and none waits that the server has ended.
func TestSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := &Stream{policy: stream.Policy{Window: 8}}
		ends := map[uint64]int{}
		note := func(out []Reply) {
			for _, r := range out {
				ends[r.Seq]++
			}
		}
		type told struct {
			seqs []wire.Range
			ack  uint64
		}
		var (
			server []uint64 // frames that it has and has not ended
			acked  uint64
			flying []told // what it wrote that has not arrived
			recent []told // what it keeps of what it wrote
		)
		write := func(m told) {
			flying = append(flying, m)
			if recent = append(recent, m); len(recent) > 3 {
				recent = recent[1:]
			}
		}
		arrive := func() {
			note(st.settle(nil, flying[0].seqs, flying[0].ack, 0, Reply{Dropped: stream.Stale}))
			flying = flying[1:]
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2: // a frame is sent, and arrives
				st.unended = append(st.unended, unended{seq: st.nextSeq, sent: time.Now()})
				st.atServer++
				server = append(server, st.nextSeq)
				st.nextSeq += 1 + rapid.Uint64Range(0, 1).Draw(t, "gap")
			case 3, 4: // some of them end
				m := told{}
				for range min(len(server), rapid.IntRange(1, 3).Draw(t, "ended")) {
					i := rapid.IntRange(0, len(server)-1).Draw(t, "which")
					m.seqs = wire.AddSeq(m.seqs, server[i])
					server = append(server[:i], server[i+1:]...)
					acked++
				}
				if m.ack = acked; m.seqs != nil {
					write(m)
				}
			case 5: // and are told
				if len(flying) > 0 {
					arrive()
				}
			case 6: // the connection breaks; a frame is cut off, endings are lost, some are told again
				st.unended = append(st.unended, unended{seq: st.nextSeq, sent: time.Now()})
				st.atServer++
				cut := st.nextSeq
				st.nextSeq++
				st.markLost(func(w *unended) bool { return w.seq >= cut })
				flying = append([]told(nil), recent...)
				note(st.takeLost(nil))
				for len(flying) > 0 {
					arrive()
				}
				note(st.settle(nil, nil, acked, 0, Reply{}))
			}
		}
		for len(flying) > 0 {
			arrive()
		}
		if len(st.unended) < len(server) || st.atServer != len(server) || st.ended != acked {
			t.Fatalf("%d wait, %d of them live, the server has %d; ended %d, acked %d", len(st.unended), st.atServer, len(server), st.ended, acked)
		}
		for len(server) > 0 { // the rest ends one by one
			acked++
			write(told{[]wire.Range{{server[0], server[0]}}, acked})
			server = server[1:]
			arrive()
		}
		for seq, n := range ends {
			if n != 1 {
				t.Fatalf("frame %d ended %d times", seq, n)
			}
		}
		if len(st.unended) != 0 || st.atServer != 0 {
			t.Fatalf("%+v wait", st.unended)
		}
	})
}
