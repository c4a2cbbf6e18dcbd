package ws

import (
	"errors"
	"math"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// control does what a text message of millrace.v1 asks for. What is wrong with
// it is told to the client.
func (s *session) control(text []byte) {
	s.heard()
	m, err := wire.ParseControl(text, wire.Client)
	var e *wire.Error
	switch {
	case err == nil:
		err = s.act(m)
	case errors.As(err, &e) && e.Fatal:
		s.end(malformed(protocolError(err)))
		return
	}
	s.begun = true
	if err != nil {
		t := errorMessageOf(protocolError(err))
		if t.SID = sidOf(m); e != nil {
			t.SID = e.SID
		}
		s.reply(t)
	}
}

// heard is called for each message. The first one after a resumption shows that
// the client has its new token.
func (s *session) heard() {
	if s.resumed {
		s.resumed = false
		s.mux.confirm()
	}
}

// sidOf returns the stream that a message is about, nil when it is about none.
func sidOf(m wire.Message) *uint32 {
	switch m := m.(type) {
	case *wire.Open:
		return &m.SID
	case *wire.Update:
		return &m.SID
	case *wire.Pause:
		return &m.SID
	case *wire.Resume:
		return &m.SID
	case *wire.Flush:
		return &m.SID
	case *wire.Close:
		return &m.SID
	}
	return nil
}

func (s *session) act(m wire.Message) error {
	switch m := m.(type) {
	case *wire.Open:
		return s.open(m)
	case *wire.Update:
		return s.on(m.SID, func(c *channel, st *stream.Stream) error { return s.update(m, c, st) })
	case *wire.Pause:
		return s.on(m.SID, func(_ *channel, st *stream.Stream) error { st.Pause(); return nil })
	case *wire.Resume:
		return s.on(m.SID, func(_ *channel, st *stream.Stream) error { st.Resume(); return nil })
	case *wire.Flush:
		return s.on(m.SID, func(c *channel, st *stream.Stream) error { c.flush(st); return nil })
	case *wire.Close:
		return s.on(m.SID, func(c *channel, st *stream.Stream) error { c.close(st); return nil })
	case *wire.Ping:
		s.reply(&wire.Pong{T: m.T, ServerT: serverTime()})
		return nil
	case *wire.Attach:
		return s.attach(m)
	}
	return stream.Errorf(stream.Unsupported, "type", "is nothing that a client sends")
}

// on calls f for an open stream.
func (s *session) on(sid uint32, f func(*channel, *stream.Stream) error) error {
	c := s.mux.channel(sid)
	if c == nil {
		return stream.Errorf(stream.NotFound, "sid", "%d is not open", sid)
	}
	return f(c, c.stream.Load())
}

// update changes a stream for the frames that come after it.
func (s *session) update(m *wire.Update, c *channel, st *stream.Stream) error {
	c.window.Store(0) // no credit is given meanwhile: the stream might not take what it is for
	err := st.Replace(changed(st.Policy(), &m.Policy))
	c.window.Store(int64(st.Policy().Window))
	if err != nil {
		return err
	}
	if m.Outputs != "" {
		form, err := formOf(m.Outputs)
		if err != nil {
			return err
		}
		n := c.received.Load()
		c.forms.set(form, c.lastSeq.Load(), n == 0 || c.acked.Load() >= n)
	}
	if m.Params != nil {
		c.params = stream.Params(m.Params)
	}
	s.reply(&wire.Credit{SID: c.sid, CreditLimit: c.limit(), Ack: c.acked.Load()})
	return nil
}

// changed returns p with what is new. A field that is 0 there is the model's
// default again.
func changed(p stream.Policy, by *wire.PolicyChange) stream.Policy {
	if by.Mode != "" {
		p.Mode = stream.Mode(by.Mode)
	}
	if ms := by.MaxAgeMS; ms != nil {
		p.MaxAge = time.Duration(*ms) * time.Millisecond
	}
	if ms := by.DeadlineMS; ms != nil {
		p.Deadline = time.Duration(*ms) * time.Millisecond
	}
	if by.MaxFPS != nil {
		p.MaxFPS = *by.MaxFPS
	}
	if by.Window != nil {
		p.Window = *by.Window
	}
	return p
}

// formOf reads the outputs of open and update, which package wire has checked.
func formOf(name string) (outputs, error) {
	switch name {
	case "", "json":
		return asJSON, nil
	case "binary":
		return asBinary, nil
	case "none":
		return asNone, nil
	}
	return 0, stream.Errorf(stream.InvalidArgument, "outputs", "%q is not known: want json, binary or none", clip(name))
}

func policyOf(p wire.Policy) stream.Policy {
	return stream.Policy{
		Mode: stream.Mode(p.Mode), MaxAge: time.Duration(p.MaxAgeMS) * time.Millisecond,
		Deadline: time.Duration(p.DeadlineMS) * time.Millisecond, MaxFPS: p.MaxFPS, Window: p.Window,
	}
}

func (s *session) open(m *wire.Open) error {
	c := &channel{m: s.mux, sid: m.SID, model: m.Model, codec: stream.Auto, width: m.Width, height: m.Height}
	version := m.Version
	if c.model == "" {
		c.model, version = s.model, s.version
	}
	if c.model == "" {
		return stream.Errorf(stream.InvalidArgument, "open.model", "is missing")
	}
	var err error
	if m.Codec != "" {
		if c.codec, err = stream.ParseCodec(m.Codec); err != nil {
			return err
		}
	}
	form, err := formOf(m.Outputs)
	if err != nil {
		return err
	}
	c.forms.set(form, 0, true)
	if m.Stateful {
		if err := s.stateful(c.model, version); err != nil {
			return err
		}
	}
	opts := stream.Options{Policy: policyOf(m.Policy), Params: stream.Params(m.Params)}
	if err := s.mux.open(c, version, opts); err != nil {
		return err
	}
	if _, err := s.decoder(c, c.codec); err != nil {
		t := errorMessageOf(err)
		t.SID = &c.sid
		s.reply(t) // before the stream's end is told
		c.stream.Load().Close(stream.ByError)
		return nil
	}
	p := c.stream.Load().Policy()
	s.reply(&wire.Opened{SID: c.sid, CreditLimit: c.limit(), Policy: wire.Policy{
		Mode: string(p.Mode), MaxAgeMS: int(p.MaxAge.Milliseconds()), DeadlineMS: int(p.Deadline.Milliseconds()), MaxFPS: p.MaxFPS, Window: p.Window,
	}})
	return nil
}

// retryAfter returns the time in ms after which it is worth trying again, the same
// that HTTP's Retry-After tells; 0 where time alone changes nothing, or a credit
// will tell.
func retryAfter(c stream.Code) int {
	switch c {
	case stream.Overloaded, stream.Unavailable, stream.Draining:
		return 1000
	}
	return 0
}

// stateful says why a stream that needs a state cannot have one.
func (s *session) stateful(model, version string) error {
	m, _, err := s.backend.Models().Model(model, version)
	if err != nil {
		return err
	}
	if !m.KeepsState() {
		return stream.Errorf(stream.Unsupported, "open.stateful", "model %s keeps nothing of a stream from one frame to the next: leave it out, or open the stream to a model that does", m.Name)
	}
	return nil
}

// attach resumes a session. What the client missed is sent again.
func (s *session) attach(m *wire.Attach) error {
	if s.begun {
		return stream.Errorf(stream.Conflict, "attach", "is the first message of a connection, or none")
	}
	old := s.mux
	found := s.a.claim(m.Token, s)
	if found == nil {
		return stream.Errorf(stream.NotFound, "attach.token", "is not known, or of this very session: it was used, or its session has ended. Open the streams again")
	}
	last := map[uint32]uint64{}
	for _, st := range m.Streams {
		if st.LastSeq != nil {
			last[st.SID] = *st.LastSeq
		}
	}
	var streams []wire.AttachedStream
	there := found.listFor(m.Streams)
	for _, c := range there {
		at := wire.AttachedStream{SID: c.sid, ReceivedCount: c.received.Load(), CreditLimit: c.limit()}
		if at.ReceivedCount > 0 {
			seq := c.lastSeq.Load()
			at.ReceivedSeq = &seq
		}
		streams = append(streams, at)
	}
	token := found.current()
	resume := func() { // by the writer, which owns what was kept
		s.sendControl(&wire.Attached{Session: found.id, ResumeToken: token, ResumeMS: int(s.a.opts.Resume.Milliseconds()), Streams: streams})
		for _, c := range there {
			after, ok := last[c.sid]
			if !ok {
				after = math.MaxUint64
			}
			for _, e := range found.keeper.missed(c, after) {
				kind := websocket.TextMessage
				if e.binary {
					kind = websocket.BinaryMessage
				}
				s.send(kind, e.msg)
			}
			if c.why != "" {
				s.sendControl(c.closedMessage(c.why))
			}
		}
	}
	if s.adopt(found, resume) {
		s.resumed = true
		old.end(ending{why: EndClient})
		old.box.close()
	}
	return nil
}
