package v1

import (
	"math"

	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// attachedStreams returns the state of each channel's frames.
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

// resume tells the client that the session is resumed, and sends the missed endings of the session's channels; known
// is the client's state. The writer owns the kept endings, and calls resume before writing anything else of the
// session.
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
		if c.writer.end != "" {
			c.writeClosed(w)
		}
	}
}

// takenOver is the ending of a connection after another connection resumed the session.
func takenOver() conn.Ending {
	return conn.Ending{
		Reason: conn.EndTakenOver, Code: wire.CloseTakenOver,
		Err: stream.Errorf(stream.Conflict, "", "another connection has resumed this session"),
	}
}

// attach resumes a session, and sends the endings missed by the client again.
func (p *protocol) attach(m *wire.Attach) error {
	if p.begun {
		return stream.Errorf(stream.Conflict, "attach", "must be the first message of a connection")
	}
	own := p.session
	s := p.sessions.claim(m.Token, p.link, own, p.client)
	if s == nil {
		return stream.Errorf(stream.NotFound, "attach.token", "is not known, or belongs to this session: it was "+
			"used, or its session has ended, or the roles or models of its client were changed. Open the streams again")
	}
	named := s.listFor(m.Streams)
	attached := &wire.Attached{
		Session: s.id, ResumeToken: p.sessions.token(s), ResumeMS: int(s.opts.Resume.Milliseconds()),
		Streams: attachedStreams(named),
	}
	if !p.link.SwitchOutbox(s.outbox, func(w *conn.Writer) { s.resume(w, attached, named, m.Streams) }) {
		p.sessions.detach(s)
		return nil
	}
	p.session, p.unconfirmed = s, true
	p.sessions.end(own, conn.Ending{Reason: conn.EndClient})
	own.outbox.Close()
	return nil
}
