package client

import (
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// control calls apply with s.mu held, to record a change, and then sends the control message of the change. control
// fails when the stream has ended.
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
	if st.state == opening { // opened sends the message when the stream is open
		conn = nil
	}
	s.mu.Unlock()
	s.sendControl(conn, m)
	return nil
}

// Update holds changes of an open stream. A nil or "" field changes nothing; a number 0 restores the model's default.
type Update struct {
	MaxAge   *time.Duration
	Deadline *time.Duration
	MaxFPS   *float64
	Window   *int
	Outputs  Outputs
	Params   stream.Params // replaces all parameters; empty = none
}

// Update changes the stream, for frames sent from now on. If the server refuses the change, the stream calls OnError.
// The mode of the policy cannot change.
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

// applyTo returns p with the changes of u.
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

// merged returns the changes of u followed by the changes of next.
func (u Update) merged(next Update) Update {
	out := next
	if out.MaxAge == nil {
		out.MaxAge = u.MaxAge
	}
	if out.Deadline == nil {
		out.Deadline = u.Deadline
	}
	if out.MaxFPS == nil {
		out.MaxFPS = u.MaxFPS
	}
	if out.Window == nil {
		out.Window = u.Window
	}
	if out.Outputs == "" {
		out.Outputs = u.Outputs
	}
	if out.Params == nil {
		out.Params = u.Params
	}
	return out
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

// Pause makes frames wait at the server if not yet in a batch.
func (st *Stream) Pause() error {
	return st.control(func() { st.paused = true }, func() wire.Message { return &wire.Pause{SID: st.sid} })
}

// Resume ends a pause.
func (st *Stream) Resume() error {
	return st.control(func() { st.paused = false }, func() wire.Message { return &wire.Resume{SID: st.sid} })
}

// Flush drops the frames at the server that are not yet in a batch.
func (st *Stream) Flush() error {
	return st.control(func() { st.flush = st.s.conn == nil }, func() wire.Message { return &wire.Flush{SID: st.sid} })
}

// Configure sends a codec's parameters, for an encoder with parameters separate from its chunks. Call Configure
// before sending the first chunk that needs the parameters. The session keeps the newest parameters, at most 64 KiB,
// and sends them again over a new connection.
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

// sendConfig sends the codec's parameters, if Configure was called. s.write is held.
func (s *Session) sendConfig(c *conn, st *Stream) {
	if c == nil || st.config == nil {
		return
	}
	m := *st.config
	m.head.SID = st.sid
	s.sendMedia(c, &m)
}
