package client

import (
	"cmp"
	"slices"

	"millrace/internal/wire"
	"millrace/stream"
)

// inOrder returns the streams in the order of opening. s.mu is held.
func (s *Session) inOrder() []*Stream {
	all := make([]*Stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b *Stream) int { return cmp.Compare(a.sid, b.sid) })
	return all
}

// attach returns the message that requests the session and the missing endings.
func (s *Session) attach() *wire.Attach {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &wire.Attach{Token: s.token}
	for _, st := range s.inOrder() {
		if st.state == open {
			m.Streams = append(m.Streams, wire.AttachStream{SID: st.sid, LastSeq: st.lastSeq()})
		}
	}
	return m
}

// lastSeq returns the number before the first frame without an arrived ending. The number of the newest ending would
// be wrong: with the policy "latest", endings do not arrive in order.
func (st *Stream) lastSeq() *uint64 {
	next := st.nextSeq
	if i := slices.IndexFunc(st.unended, func(u unended) bool { return !u.lost }); i >= 0 {
		next = st.unended[i].seq
	}
	if next == 0 {
		return nil
	}
	return new(next - 1)
}

// resumeStreams resumes, over c, the streams still kept by the server.
func (s *Session) resumeStreams(c *conn, m *wire.Attached) {
	attached := map[uint32]*wire.AttachedStream{}
	for i := range m.Streams {
		attached[m.Streams[i].SID] = &m.Streams[i]
	}
	s.continueOn(c, func() { s.token = m.ResumeToken }, func(st *Stream) ([]wire.Message, bool) {
		at := attached[st.sid]
		switch {
		case st.state == opening && at != nil: // the message opened was lost with the connection
			old := &wire.Close{SID: st.sid}
			return append([]wire.Message{old}, st.reopen()...), true
		case st.state == opening:
			return st.reopen(), true
		case at == nil:
			return nil, false
		}
		return st.resume(at), true
	})
}

// reopenStreams opens the streams again when the server no longer has the session.
func (s *Session) reopenStreams(c *conn, m *wire.Ready) {
	s.continueOn(c, func() { s.setReady(m) }, func(st *Stream) ([]wire.Message, bool) {
		if st.closing {
			return nil, false
		}
		st.markLost(func(*unended) bool { return true })
		return st.reopen(), true
	})
}

// continueOn makes c the session's connection. With s.mu held, continueOn calls prepare, and then each for every
// stream: each returns the messages to send, and whether the stream stays open.
func (s *Session) continueOn(c *conn, prepare func(), each func(*Stream) (messages []wire.Message, open bool)) {
	var messages []wire.Message
	var ended, resumed []*Stream
	var reasons []error
	s.write.Lock()
	s.mu.Lock()
	prepare()
	for _, st := range s.inOrder() {
		m, open := each(st)
		messages = append(messages, m...)
		if open {
			resumed = append(resumed, st)
		} else {
			var err error
			if !st.closing {
				err = stream.Errorf(stream.Unavailable, "",
					"the stream ended while there was no connection: open it again")
			}
			ended, reasons = append(ended, st), append(reasons, err)
		}
		st.notifyChange()
	}
	s.setConn(c)
	s.mu.Unlock()
	s.sendControl(c, messages...)
	for _, st := range resumed {
		if st.state == open { // only this goroutine changes the state
			s.sendConfig(c, st)
		}
	}
	s.write.Unlock()
	for i, st := range ended {
		s.endStream(st, reasons[i])
	}
	for _, st := range resumed {
		s.deliver(st, func() { s.out = st.takeLost(s.out[:0]) })
		if st.needsKeyFrame() {
			st.opts.OnAdvice(Advice{KeyFrame: true})
		}
	}
}

// reopen gives the stream a new id and returns the message that opens the stream. s.mu is held.
func (st *Stream) reopen() []wire.Message {
	s := st.s
	delete(s.streams, st.sid)
	st.sid = s.newSID()
	s.streams[st.sid] = st
	st.state, st.sent, st.limit, st.ended, st.flush = opening, 0, 0, 0, false
	return []wire.Message{st.openMessage()}
}

// resume marks the frames not received by the server as lost, and returns the messages possibly lost with the
// connection. s.mu is held.
func (st *Stream) resume(at *wire.AttachedStream) (messages []wire.Message) {
	st.markLost(func(u *unended) bool { return at.ReceivedSeq == nil || u.seq > *at.ReceivedSeq })
	st.sent, st.limit = at.ReceivedCount, at.CreditLimit
	// The server replies to an update with a credit message with the number of ended frames: endings no longer kept
	// by the server show as a gap.
	messages = append(messages, st.update.message(st.sid))
	if st.paused {
		messages = append(messages, &wire.Pause{SID: st.sid})
	} else {
		messages = append(messages, &wire.Resume{SID: st.sid})
	}
	if st.flush {
		messages = append(messages, &wire.Flush{SID: st.sid})
		st.flush = false
	}
	if st.closing {
		messages = append(messages, &wire.Close{SID: st.sid})
	}
	return messages
}

// markLost marks frames as lost. s.mu is held.
func (st *Stream) markLost(which func(*unended) bool) {
	for i := range st.unended {
		if u := &st.unended[i]; !u.lost && which(u) {
			u.lost = true
			st.atServer--
			st.discontinuity = true
		}
	}
}

// needsKeyFrame reports whether the sender should be asked for a key frame, because the next frames depend on lost
// frames.
func (st *Stream) needsKeyFrame() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.discontinuity && interCoded(st.codec) && st.opts.OnAdvice != nil
}
