package client

import (
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// control sends a control message after apply, which is called with s.mu held,
// has noted what it is for. It fails when the stream has ended.
func (st *Stream) control(apply func(), message func() wire.Message) error {
	s := st.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if st.state == closed {
		defer s.mu.Unlock()
		if st.err != nil {
			return st.err
		}
		return stream.Errorf(stream.Canceled, "", "the stream is closed")
	}
	apply()
	m, conn := message(), s.conn
	if st.state == opening { // it is sent when the stream is open
		conn = nil
	}
	s.mu.Unlock()
	s.sendControl(conn, m)
	return nil
}

// Update changes a stream while it is open. What is nil or "" stays as it is; a
// number that is 0 is replaced by the model's default.
type Update struct {
	MaxAge   *time.Duration
	Deadline *time.Duration
	MaxFPS   *float64
	Window   *int
	Outputs  Outputs
	Params   stream.Params // in place of all others; empty = none
}

// Update changes the stream, for frames sent from now on. What the server refuses
// of it is told to OnError. The mode of the policy cannot change.
func (st *Stream) Update(u Update) error {
	if err := u.applyTo(stream.Policy{}).Validate(); err != nil {
		return err
	}
	if err := checkParams(u.Params); err != nil {
		return err
	}
	return st.control(func() {
		st.update = st.update.merged(u)
		st.updated = true
		st.policy = u.applyTo(st.policy)
		st.notifyChange()
	}, func() wire.Message { return u.message(st.sid) })
}

// applyTo returns p with what u sets.
func (u *Update) applyTo(p stream.Policy) stream.Policy {
	set(&p.MaxAge, u.MaxAge)
	set(&p.Deadline, u.Deadline)
	set(&p.MaxFPS, u.MaxFPS)
	set(&p.Window, u.Window)
	return p
}

func set[T any](to *T, value *T) {
	if value != nil {
		*to = *value
	}
}

// merged returns u with what next sets in place of its own.
func (u Update) merged(next Update) Update {
	or := next
	if or.MaxAge == nil {
		or.MaxAge = u.MaxAge
	}
	if or.Deadline == nil {
		or.Deadline = u.Deadline
	}
	if or.MaxFPS == nil {
		or.MaxFPS = u.MaxFPS
	}
	if or.Window == nil {
		or.Window = u.Window
	}
	if or.Outputs == "" {
		or.Outputs = u.Outputs
	}
	if or.Params == nil {
		or.Params = u.Params
	}
	return or
}

func (u *Update) message(sid uint32) *wire.Update {
	m := &wire.Update{SID: sid, Outputs: string(u.Outputs), Params: wire.Params(u.Params)}
	m.Policy.MaxAgeMS, m.Policy.DeadlineMS = millisOf(u.MaxAge), millisOf(u.Deadline)
	m.Policy.MaxFPS, m.Policy.Window = u.MaxFPS, u.Window
	return m
}

func millisOf(d *time.Duration) *int {
	if d == nil {
		return nil
	}
	return new(millis(*d))
}

// Pause has frames wait at the server that are not yet in a batch.
func (st *Stream) Pause() error {
	return st.control(func() { st.paused = true }, func() wire.Message { return &wire.Pause{SID: st.sid} })
}

// Resume ends a pause.
func (st *Stream) Resume() error {
	return st.control(func() { st.paused = false }, func() wire.Message { return &wire.Resume{SID: st.sid} })
}

// Flush drops the frames that wait at the server and are not yet in a batch.
func (st *Stream) Flush() error {
	return st.control(func() { st.flush = st.s.conn == nil }, func() wire.Message { return &wire.Flush{SID: st.sid} })
}

// Configure sends a codec's parameters, where an encoder has them apart from its
// chunks: before the first chunk that needs them. The newest are kept, 64 KiB at
// most, and sent again over another connection.
func (st *Stream) Configure(codec string, data []byte) error {
	m, err := config(codec, data)
	if err != nil {
		return err
	}
	s := st.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if err := st.sendError(0); err != nil {
		s.mu.Unlock()
		return err
	}
	st.config = &m
	conn := s.conn
	if st.state == opening {
		conn = nil
	}
	s.mu.Unlock()
	s.sendConfig(conn, st)
	return nil
}

// sendConfig sends the codec's parameters that Configure was given, if there are
// any. s.write is held.
func (s *Session) sendConfig(c *conn, st *Stream) {
	if c == nil || st.config == nil {
		return
	}
	m := *st.config
	m.head.SID = st.sid
	s.sendMedia(c, &m)
}
