package v1

import (
	"math"

	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// attachedStreams says of each channel what came of its frames.
func attachedStreams(channels []*channel) []wire.AttachedStream {
	var out []wire.AttachedStream
	for _, c := range channels {
		at := wire.AttachedStream{SID: c.sid, ReceivedCount: c.window.Received(), CreditLimit: c.window.Limit()}
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

// attach resumes a session. What the client missed is sent again.
func (p *protocol) attach(m *wire.Attach) error {
	if p.begun {
		return stream.Errorf(stream.Conflict, "attach", "is the first message of a connection, or none")
	}
	own := p.session
	s := p.sessions.claim(m.Token, p.link, own)
	if s == nil {
		return stream.Errorf(stream.NotFound, "attach.token", "is not known, or of this very session: it was used, or its session has ended. Open the streams again")
	}
	named := s.listFor(m.Streams)
	attached := &wire.Attached{
		Session: s.id, ResumeToken: p.sessions.token(s), ResumeMS: int(s.opts.Resume.Milliseconds()), Streams: attachedStreams(named),
	}
	if !p.link.SwitchOutbox(s.outbox, func(w *conn.Writer) { s.resume(w, attached, named, m.Streams) }) {
		p.sessions.detach(s, p.link)
		return nil
	}
	p.session, p.unconfirmed = s, true
	p.sessions.end(own, conn.Ending{Why: conn.EndClient})
	own.outbox.Close()
	return nil
}
