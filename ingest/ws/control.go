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
		t := newErrorText(protocolError(err))
		if t.SID = sidOf(m); e != nil {
			t.SID = e.SID
		}
		s.tell(message(t))
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
		return s.on(m.SID, func(c *channel, st *stream.Stream) error {
			if err := st.Update(policyOf(m.Policy)); err != nil {
				return err
			}
			c.window.Store(int64(st.Policy().Window))
			s.credit(c)
			return nil
		})
	case *wire.Pause:
		return s.on(m.SID, func(_ *channel, st *stream.Stream) error { st.Pause(); return nil })
	case *wire.Resume:
		return s.on(m.SID, func(_ *channel, st *stream.Stream) error { st.Resume(); return nil })
	case *wire.Flush:
		return s.on(m.SID, func(c *channel, st *stream.Stream) error { c.flush(st); return nil })
	case *wire.Close:
		return s.on(m.SID, func(c *channel, st *stream.Stream) error { c.close(st); return nil })
	case *wire.Ping:
		s.tell(message(struct {
			Type string `json:"type"`
			T    int64  `json:"t"`
			At   int64  `json:"server_t"`
		}{"pong", m.T, serverTime()}))
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

func (s *session) credit(c *channel) {
	s.tell(message(struct {
		Type  string `json:"type"`
		SID   uint32 `json:"sid"`
		Limit uint64 `json:"credit_limit"`
	}{"credit", c.sid, c.limit()}))
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
	switch m.Outputs {
	case "", "json":
	case "binary":
		c.form = asBinary
	case "none":
		c.form = asNone
	default:
		return stream.Errorf(stream.InvalidArgument, "open.outputs", "%q is not known: want json, binary or none", clip(m.Outputs))
	}
	opts := stream.Options{Policy: policyOf(m.Policy), Params: stream.Params(m.Params)}
	if err := s.mux.open(c, version, opts); err != nil {
		return err
	}
	if _, err := s.decoder(c, c.codec); err != nil {
		t := newErrorText(err)
		t.SID = &c.sid
		s.tell(message(t)) // before the stream's end is told
		c.stream.Load().Close(stream.ByError)
		return nil
	}
	p := c.stream.Load().Policy()
	s.tell(message(struct {
		Type   string     `json:"type"`
		SID    uint32     `json:"sid"`
		Limit  uint64     `json:"credit_limit"`
		Policy openedWith `json:"policy"`
	}{"opened", c.sid, c.limit(), openedWith{p.Mode, p.MaxAge.Milliseconds(), p.Deadline.Milliseconds(), p.MaxFPS, p.Window}}))
	return nil
}

// openedWith is the policy in force, the model's defaults filled in.
type openedWith struct {
	Mode       stream.Mode `json:"mode"`
	MaxAgeMS   int64       `json:"max_age_ms"`
	DeadlineMS int64       `json:"deadline_ms"`
	MaxFPS     float64     `json:"max_fps"`
	Window     int         `json:"window"`
}

// attached says how far the server got with each stream of a resumed session.
type attached struct {
	SID      uint32  `json:"sid"`
	Received uint64  `json:"received_count"`
	Seq      *uint64 `json:"received_seq,omitempty"`
	Limit    uint64  `json:"credit_limit"`
}

// attach resumes a session. What the client missed is sent again.
func (s *session) attach(m *wire.Attach) error {
	if s.begun {
		return stream.Errorf(stream.Conflict, "attach", "is the first message of a connection, or none")
	}
	old := s.mux
	found := s.a.claim(m.Token, s)
	if found == nil {
		return stream.Errorf(stream.NotFound, "attach.token", "is not known: it was used, or its session has ended. Open the streams again")
	}
	last := map[uint32]uint64{}
	for _, st := range m.Streams {
		if st.LastSeq != nil {
			last[st.SID] = *st.LastSeq
		}
	}
	var streams []attached
	for _, c := range found.list() {
		at := attached{SID: c.sid, Received: c.received.Load(), Limit: c.limit()}
		if at.Received > 0 {
			seq := c.lastSeq.Load()
			at.Seq = &seq
		}
		streams = append(streams, at)
	}
	found.mu.Lock()
	token := found.token
	found.mu.Unlock()
	resume := func() { // by the writer, which owns what was kept
		s.send(websocket.TextMessage, message(struct {
			Type        string     `json:"type"`
			Session     string     `json:"session"`
			ResumeToken string     `json:"resume_token"`
			ResumeMS    int64      `json:"resume_ms"`
			Streams     []attached `json:"streams"`
		}{"attached", found.id, token, s.a.opts.Resume.Milliseconds(), streams}))
		for _, c := range found.list() {
			after, ok := last[c.sid]
			if !ok {
				after = math.MaxUint64
			}
			c.missed(after, func(k *kept) {
				kind := websocket.TextMessage
				if k.binary {
					kind = websocket.BinaryMessage
				}
				s.send(kind, k.msg)
			})
		}
	}
	if s.adopt(found, resume) {
		old.end(ending{why: EndClient})
		old.box.close()
	}
	return nil
}
