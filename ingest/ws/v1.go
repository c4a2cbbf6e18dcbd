package ws

import (
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// serveMux is the reader goroutine of a millrace.v1 session.
func (s *session) serveMux() {
	s.mux = newMux(s.a, s.backend, s)
	s.box = s.mux.box
	s.mux.greet(s.ready())
	if s.startWriter() {
		s.read()
	}
}

func (s *session) ready() wire.Message {
	return &wire.Ready{
		Session: s.mux.id, ResumeToken: s.mux.current(), ResumeMS: int(s.a.opts.Resume.Milliseconds()),
		Limits: wire.Limits{MaxMessage: s.a.opts.MaxMessage, MaxStreams: maxStreams, MaxWindow: stream.MaxWindow},
	}
}

// takeOverTime is how long a connection may take over the message it is writing
// when another one takes its session: whoever resumes waits for it.
const takeOverTime = time.Second

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
		_ = s.conn.SetWriteDeadline(time.Now().Add(takeOverTime)) // a message that nobody reads
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
		s.mux.ended(c, e.closed)
		s.sendControl(c.closedMessage(e.closed))
	case e.result == nil:
		for _, d := range c.takeDrops() {
			c.acked.Add(d.frames)
			c.told.drops += d.frames
			msg := enc.drops(c, &d)
			s.mux.keeper.keep(c, d.ranges[len(d.ranges)-1][1], msg, false)
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
		msg, isBinary := enc.encode(e.result, c.forms.of(e.result.Seq), source{}, c)
		if !e.result.Partial {
			c.told.note(enc.told)
			s.mux.keeper.keep(c, e.result.Seq, msg, isBinary)
		}
		kind := websocket.TextMessage
		if isBinary {
			kind = websocket.BinaryMessage
		}
		s.send(kind, msg)
		if r := e.result; r.Outcome == stream.Answered && !r.Partial {
			if r.Width > 0 {
				c.pace.sent = [2]int{r.Width, r.Height}
			}
			s.note(c, 1, max(r.Timing.Done.Sub(r.Timing.Received), 0), 0) // no time for one that completed no window
		}
		c.closeIfLast()
	}
}

func (c *channel) closedMessage(why stream.CloseReason) wire.Message {
	return &wire.Closed{SID: c.sid, Reason: string(why), Totals: c.totals()}
}

// errorMessageOf is an error of millrace.v1.
func errorMessageOf(err error) *wire.ErrorMessage {
	code := stream.CodeOf(err)
	return &wire.ErrorMessage{Code: string(code), Message: err.Error(), Retryable: code.Retryable(), RetryAfterMS: retryAfter(code)}
}

// fatalMessage goes before the end of a connection.
func fatalMessage(err error) []byte {
	t := errorMessageOf(err)
	t.Fatal = true
	return wire.AppendError(nil, t)
}

// frameError belongs to a frame of a stream that is not open.
func frameError(h *wire.Header, err error) *wire.ErrorMessage {
	t := errorMessageOf(err)
	t.SID, t.Seq = &h.SID, &h.Seq
	return t
}

// serverTime is the server's clock, microseconds of the day's time.
func serverTime() int64 { return time.Now().UnixMicro() }
