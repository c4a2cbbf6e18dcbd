package v1

import (
	"math"

	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
)

// attachedStreams says of each channel what came of its frames.
func attachedStreams(channels []*channel) []wire.AttachedStream {
	var out []wire.AttachedStream
	for _, c := range channels {
		at := wire.AttachedStream{SID: c.sid, ReceivedCount: c.received.Load(), CreditLimit: c.limit()}
		if at.ReceivedCount > 0 {
			seq := c.lastSeq.Load()
			at.ReceivedSeq = &seq
		}
		out = append(out, at)
	}
	return out
}

// resume tells the client that it has its session again and sends what it missed of its channels; known says what it has. The
// writer, which owns what was kept, calls it before it writes anything else of the session.
func (s *session) resume(w *conn.Writer, attached *wire.Attached, channels []*channel, known []wire.AttachStream) {
	s.write(w, attached)
	last := map[uint32]uint64{}
	for _, st := range known {
		if st.LastSeq != nil {
			last[st.SID] = *st.LastSeq
		}
	}
	for _, c := range channels {
		seq, ok := last[c.sid]
		if !ok {
			seq = math.MaxUint64
		}
		for _, e := range s.replay.after(&c.kept, seq) {
			w.Message(e.msg, e.binary)
		}
		if c.end != "" {
			c.writeClosed(w)
		}
	}
}
