package client

import (
	"millrace/internal/wire"
	"millrace/stream"
)

// order sends a control message after f, which is called with s.mu held, has
// noted what it is for. It fails when the channel has ended.
func (ch *Channel) order(f func(), m func() wire.Message) error {
	s := ch.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if ch.state == closed {
		defer s.mu.Unlock()
		if ch.err != nil {
			return ch.err
		}
		return stream.Errorf(stream.Canceled, "", "the channel is closed")
	}
	f()
	msg, l := m(), s.link
	if ch.state == opening { // it is said when it is open
		l = nil
	}
	s.mu.Unlock()
	s.say(l, msg)
	return nil
}

// Update changes the policy: fields of p that are set replace those in force, for
// frames sent from now on. The mode cannot change.
func (ch *Channel) Update(p stream.Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	ch.s.mu.Lock()
	mode := ch.policy.Mode
	ch.s.mu.Unlock()
	if p.Mode != "" && p.Mode != mode {
		return stream.Errorf(stream.Conflict, "policy", "is %s and cannot become %s: open another channel", mode, p.Mode)
	}
	p.Mode = ""
	return ch.order(func() {
		ch.want, ch.policy = merge(ch.want, p), merge(ch.policy, p)
		ch.wake()
	}, func() wire.Message { return &wire.Update{SID: ch.sid, Policy: changeOf(p)} })
}

// merge replaces what p sets.
func merge(into, p stream.Policy) stream.Policy {
	mode := into.Mode
	if p.MaxAge != 0 {
		into.MaxAge = p.MaxAge
	}
	if p.Deadline != 0 {
		into.Deadline = p.Deadline
	}
	if p.MaxFPS != 0 {
		into.MaxFPS = p.MaxFPS
	}
	if p.Window != 0 {
		into.Window = p.Window
	}
	into.Mode = mode
	return into
}

// Pause has frames wait at the server that are not yet in a batch.
func (ch *Channel) Pause() error {
	return ch.order(func() { ch.paused = true }, func() wire.Message { return &wire.Pause{SID: ch.sid} })
}

// Resume ends a pause.
func (ch *Channel) Resume() error {
	return ch.order(func() { ch.paused = false }, func() wire.Message { return &wire.Resume{SID: ch.sid} })
}

// Flush drops the frames that wait at the server and are not yet in a batch.
func (ch *Channel) Flush() error {
	return ch.order(func() { ch.flush = ch.s.link == nil }, func() wire.Message { return &wire.Flush{SID: ch.sid} })
}

// Configure sends a codec's parameters, where an encoder has them apart from its
// chunks: before the first chunk that needs them. The newest are kept, 64 KiB at
// most, and sent again over another connection.
func (ch *Channel) Configure(codec string, data []byte) error {
	m, err := config(codec, data)
	if err != nil {
		return err
	}
	s := ch.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if err := ch.refuses(0); err != nil {
		s.mu.Unlock()
		return err
	}
	ch.config = &m
	l := s.link
	if ch.state == opening {
		l = nil
	}
	s.mu.Unlock()
	s.configure(l, ch)
	return nil
}

// configure sends what ch was configured with. s.write is held.
func (s *Session) configure(l *link, ch *Channel) {
	if l == nil || ch.config == nil {
		return
	}
	m := *ch.config
	m.head.SID = ch.sid
	if err := s.put(l, &m); err != nil {
		_ = l.Close()
	}
}
