package client

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/wire"
	"millrace/stream"
)

// A server ends frames in any order, sends the endings one by one, in ranges or not at all, and connections lose
// random messages. Each frame ends exactly once, and no frame ended by the server keeps waiting.
func TestSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := &Stream{policy: stream.Policy{Window: 8}}
		ends := map[uint64]int{}
		note := func(out []Reply) {
			for _, r := range out {
				ends[r.Seq]++
			}
		}
		type sentEnding struct {
			seqs []wire.Range
			ack  uint64
		}
		var (
			server []uint64 // unended frames at the server
			acked  uint64
			flying []sentEnding // sent endings that have not arrived
			recent []sentEnding // sent endings kept by the server
		)
		write := func(m sentEnding) {
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
			case 3, 4: // end a part of the frames
				m := sentEnding{}
				for range min(len(server), rapid.IntRange(1, 3).Draw(t, "ended")) {
					i := rapid.IntRange(0, len(server)-1).Draw(t, "which")
					m.seqs = wire.AddSeq(m.seqs, server[i])
					server = append(server[:i], server[i+1:]...)
					acked++
				}
				if m.ack = acked; m.seqs != nil {
					write(m)
				}
			case 5: // and their endings are sent
				if len(flying) > 0 {
					arrive()
				}
			case 6: // the connection is lost; a frame is cut, endings are lost, some are sent again
				st.unended = append(st.unended, unended{seq: st.nextSeq, sent: time.Now()})
				st.atServer++
				cut := st.nextSeq
				st.nextSeq++
				st.markLost(func(w *unended) bool { return w.seq >= cut })
				flying = append([]sentEnding(nil), recent...)
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
			t.Fatalf("%d wait, %d of them live, the server has %d; ended %d, acked %d", len(st.unended), st.atServer,
				len(server), st.ended, acked)
		}
		for len(server) > 0 { // end the rest one by one
			acked++
			write(sentEnding{[]wire.Range{{server[0], server[0]}}, acked})
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
