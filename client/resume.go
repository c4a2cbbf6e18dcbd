package client

import (
	"cmp"
	"slices"

	"millrace/internal/wire"
	"millrace/stream"
)

// sorted are the channels in the order in which they were opened. s.mu is held.
func (s *Session) sorted() []*Channel {
	all := make([]*Channel, 0, len(s.channels))
	for _, ch := range s.channels {
		all = append(all, ch)
	}
	slices.SortFunc(all, func(a, b *Channel) int { return cmp.Compare(a.sid, b.sid) })
	return all
}

// attach asks for the session, and for the endings that have not come.
func (s *Session) attach() *wire.Attach {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &wire.Attach{Token: s.token}
	for _, ch := range s.sorted() {
		if ch.state == open {
			m.Streams = append(m.Streams, wire.AttachStream{SID: ch.sid, LastSeq: ch.lastSeq()})
		}
	}
	return m
}

// lastSeq is below that of every frame whose ending is still to come. Endings do
// not come in order in "latest", so that the newest one that came tells nothing.
func (ch *Channel) lastSeq() *uint64 {
	next := ch.seq
	if i := slices.IndexFunc(ch.waiting, func(w waiting) bool { return !w.lost }); i >= 0 {
		next = ch.waiting[i].seq
	}
	if next == 0 {
		return nil
	}
	return new(next - 1)
}

// goOn takes up the session over l, as far as the server got with it.
func (s *Session) goOn(l *link, m *wire.Attached) {
	at := map[uint32]*wire.AttachedStream{}
	for i := range m.Streams {
		at[m.Streams[i].SID] = &m.Streams[i]
	}
	s.takeOver(l, func() { s.token = m.ResumeToken }, func(ch *Channel) ([]wire.Message, bool) {
		there := at[ch.sid]
		switch {
		case ch.state == opening && there != nil: // whose answer went down with the connection
			gone := &wire.Close{SID: ch.sid}
			return append([]wire.Message{gone}, ch.reopen()...), true
		case ch.state == opening:
			return ch.reopen(), true
		case there == nil:
			return nil, false
		}
		return ch.goOn(there), true
	})
}

// startOver opens the streams of a session that the server no longer has.
func (s *Session) startOver(l *link, m *wire.Ready) {
	s.takeOver(l, func() { s.begin(m) }, func(ch *Channel) ([]wire.Message, bool) {
		if ch.closing {
			return nil, false
		}
		ch.lose(func(*waiting) bool { return true })
		return ch.reopen(), true
	})
}

// takeOver makes l the session's connection. Each channel says what it has to
// tell the server, or that it has ended.
func (s *Session) takeOver(l *link, begin func(), each func(*Channel) ([]wire.Message, bool)) {
	var say []wire.Message
	var over, on []*Channel
	var why []error
	s.write.Lock()
	s.mu.Lock()
	begin()
	for _, ch := range s.sorted() {
		m, lives := each(ch)
		say = append(say, m...)
		if lives {
			on = append(on, ch)
		} else {
			var err error
			if !ch.closing {
				err = stream.Errorf(stream.Unavailable, "", "the stream ended while there was no connection: open another channel")
			}
			over, why = append(over, ch), append(why, err)
		}
		ch.wake()
	}
	s.use(l)
	s.mu.Unlock()
	s.say(l, say...)
	for _, ch := range on {
		if ch.state == open { // which only this goroutine changes
			s.configure(l, ch)
		}
	}
	s.write.Unlock()
	for i, ch := range over {
		s.endChannel(ch, why[i])
	}
	for _, ch := range on {
		s.handOver(ch, func() { s.out = ch.flushLost(s.out[:0]) })
		if ch.advises() {
			ch.opts.OnAdvice(Advice{KeyFrame: true})
		}
	}
}

// reopen asks for the stream anew, under a number of its own. s.mu is held.
func (ch *Channel) reopen() []wire.Message {
	s := ch.s
	delete(s.channels, ch.sid)
	ch.sid = s.newSID()
	s.channels[ch.sid] = ch
	ch.state, ch.sent, ch.limit, ch.ended, ch.flush = opening, 0, 0, 0, false
	return []wire.Message{ch.openMessage()}
}

// goOn settles which frames the server has, and says again what may have been
// lost. s.mu is held.
func (ch *Channel) goOn(there *wire.AttachedStream) (say []wire.Message) {
	ch.lose(func(w *waiting) bool { return there.ReceivedSeq == nil || w.seq > *there.ReceivedSeq })
	ch.sent, ch.limit = there.ReceivedCount, there.CreditLimit
	// The answer is a credit, which tells how many frames have ended: endings that
	// the server no longer has show as a gap.
	policy := ch.policy
	policy.Mode = ""
	say = append(say, &wire.Update{SID: ch.sid, Policy: changeOf(policy)})
	if ch.paused {
		say = append(say, &wire.Pause{SID: ch.sid})
	} else {
		say = append(say, &wire.Resume{SID: ch.sid})
	}
	if ch.flush {
		say = append(say, &wire.Flush{SID: ch.sid})
		ch.flush = false
	}
	if ch.closing {
		say = append(say, &wire.Close{SID: ch.sid})
	}
	return say
}

// lose marks frames as lost. s.mu is held.
func (ch *Channel) lose(which func(*waiting) bool) {
	for i := range ch.waiting {
		if w := &ch.waiting[i]; !w.lost && which(w) {
			w.lost = true
			ch.live--
			ch.gap = true
		}
	}
}

// advises says whether the sender should be asked for a key frame, for those
// that come would need a frame that is lost.
func (ch *Channel) advises() bool {
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return ch.gap && interCoded(ch.codec) && ch.opts.OnAdvice != nil
}
