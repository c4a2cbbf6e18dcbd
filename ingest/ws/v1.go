package ws

import (
	"encoding/json"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// serveMux is the reader goroutine of a millrace.v1 session.
func (s *session) serveMux() {
	s.mux = newMux(s.a, s.door, s)
	s.box = s.mux.box
	s.tell(s.ready())
	if s.startWriter() {
		s.read()
	}
}

// message is one of the server's control messages that are not sent for each
// frame.
func message(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs
	}
	return b
}

func (s *session) ready() []byte {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	type limits struct {
		MaxMessage int `json:"max_message"`
		MaxStreams int `json:"max_streams"`
		MaxWindow  int `json:"max_window"`
	}
	return message(struct {
		Type        string `json:"type"`
		Session     string `json:"session"`
		ResumeToken string `json:"resume_token"`
		ResumeMS    int64  `json:"resume_ms"`
		Limits      limits `json:"limits"`
	}{"ready", s.mux.id, s.mux.token, s.a.opts.Resume.Milliseconds(), limits{s.a.opts.MaxMessage, maxStreams, stream.MaxWindow}})
}

// adoption is a session that becomes this connection's.
type adoption struct {
	m    *mux
	then func() // by the writer, before anything else of the session is written
	done chan struct{}
}

// adopt makes another session this connection's. The writer takes it over when
// nothing waits to be written of the one before.
func (s *session) adopt(m *mux, then func()) bool {
	n := &adoption{m, then, make(chan struct{})}
	box := s.box // the writer replaces it once it has seen n
	s.next.Store(n)
	box.signal()
	select {
	case <-n.done:
		return true
	case <-s.wrote:
		return false
	}
}

// leaveMux ends the connection, and the session with it unless the client may
// come back to it.
func (s *session) leaveMux() {
	e, m := &s.cause, s.mux
	lost := e.why == EndGone || e.why == EndTakenOver
	if lost {
		if e.why == EndGone {
			_ = s.conn.Close()
		}
		s.stopWriter()
		if e.why == EndTakenOver {
			s.farewell()
		}
		if m.leave(s) {
			close(s.detached)
			s.bye()
			return
		}
	}
	if e.why == EndDraining {
		s.tell(message(struct {
			Type string `json:"type"`
			Left int64  `json:"time_left_ms"`
		}{"goaway", 0}))
	}
	if e.gone() {
		_ = s.conn.Close()
		s.stopWriter()
		m.box.close()
	}
	m.end(*e)
	if s.writing && !e.gone() {
		m.box.finish()
		<-s.wrote
	}
	m.box.close()
	close(s.detached)
	s.bye()
}

// stopWriter ends the writer and leaves what waits.
func (s *session) stopWriter() {
	close(s.cut)
	if s.writing {
		<-s.wrote
	}
}

// writeChannel writes what became of a stream, or of one of its frames, and keeps
// what the client would want again.
func (s *session) writeChannel(enc *encoder, e *entry) {
	c := e.channel
	switch {
	case e.closed != "":
		s.mux.forget(c)
		s.send(websocket.TextMessage, c.closedMessage(e.closed))
	case e.result == nil:
		for _, d := range c.takeDrops() {
			c.acked.Add(d.frames)
			msg := enc.drops(c, &d)
			c.keep(d.ranges[len(d.ranges)-1][1], msg, false)
			s.send(websocket.TextMessage, msg)
			if d.reason == stream.Superseded || d.reason == stream.Overtaken || d.reason == stream.Stale {
				s.note(c, 0, 0, d.frames)
			}
		}
		c.closeIfLast()
	default:
		if !e.result.Partial {
			c.acked.Add(1)
		}
		msg, isBinary := enc.encode(e.result, c.form, source{}, c)
		if !e.result.Partial {
			c.keep(e.result.Seq, msg, isBinary)
		}
		kind := websocket.TextMessage
		if isBinary {
			kind = websocket.BinaryMessage
		}
		s.send(kind, msg)
		if r := e.result; r.Outcome == stream.Answered && !r.Partial {
			s.note(c, 1, max(r.Timing.Done.Sub(r.Timing.Received), 0), 0) // no time for one that completed no window
		}
		c.closeIfLast()
	}
}

func (c *channel) closedMessage(why stream.CloseReason) []byte {
	type totals struct {
		Received uint64 `json:"received"`
		Accepted uint64 `json:"accepted"`
		Results  uint64 `json:"results"`
		Drops    uint64 `json:"drops"`
		Errors   uint64 `json:"errors"`
	}
	t := totals{Received: c.received.Load()}
	if st := c.stream.Load(); st != nil {
		n := st.Counts()
		t.Accepted, t.Results, t.Drops, t.Errors = n.Accepted, n.Results, n.Drops, n.Errors
	}
	return message(struct {
		Type   string             `json:"type"`
		SID    uint32             `json:"sid"`
		Reason stream.CloseReason `json:"reason"`
		Totals totals             `json:"totals"`
	}{"closed", c.sid, why, t})
}

// errorText is an error message of millrace.v1.
type errorText struct {
	Type      string  `json:"type"`
	Code      string  `json:"code"`
	Message   string  `json:"message"`
	Retryable bool    `json:"retryable"`
	SID       *uint32 `json:"sid,omitempty"`
	Seq       *uint64 `json:"seq,omitempty"`
	Fatal     bool    `json:"fatal,omitempty"`
}

func newErrorText(err error) errorText {
	code := stream.CodeOf(err)
	return errorText{Type: "error", Code: string(code), Message: err.Error(), Retryable: code.Retryable()}
}

// fatalMessage goes before the end of a connection.
func fatalMessage(err error) []byte {
	t := newErrorText(err)
	t.Fatal = true
	return message(t)
}

// frameError belongs to a frame of a stream that is not open.
func frameError(h *wire.Header, err error) []byte {
	t := newErrorText(err)
	t.SID, t.Seq = &h.SID, &h.Seq
	return message(t)
}

// serverTime is the server's clock, microseconds of the day's time.
func serverTime() int64 { return time.Now().UnixMicro() }
