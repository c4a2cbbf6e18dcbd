package ws

import (
	"time"

	"github.com/gorilla/websocket"

	"millrace/stream"
)

// maxSpare bounds the queue memory that a session keeps between bursts.
const maxSpare = 64

// write is the writer goroutine. It ends when the outbox is finished and empty,
// or closed.
func (s *session) write() {
	defer close(s.wrote)
	ping := time.NewTimer(s.a.opts.PingEvery)
	defer ping.Stop()
	var spare []entry
	for {
		if s.isCut() {
			return
		}
		batch, last := s.box.take(spare)
		spare = nil
		if len(batch) > 0 {
			s.writeAll(batch)
			clear(batch)
			if cap(batch) <= maxSpare {
				spare = batch[:0]
			}
		}
		if last {
			s.farewell()
			return
		}
		if n := s.next.Load(); n != nil && len(batch) == 0 {
			s.next.Store(nil)
			s.mux, s.box = n.m, n.m.box // the reader waits meanwhile
			n.then()
			close(n.done)
			continue
		}
		if len(batch) > 0 {
			select {
			case <-ping.C:
				s.ping()
				ping.Reset(s.a.opts.PingEvery)
			default:
			}
			continue
		}
		select {
		case <-s.box.wake:
		case <-s.cut:
		case <-ping.C:
			s.ping()
			ping.Reset(s.a.opts.PingEvery)
		}
	}
}

func (s *session) isCut() bool {
	select {
	case <-s.cut:
		return true
	default:
		return false
	}
}

// writeAll writes a batch of replies, and disposes of each, even when it panics.
func (s *session) writeAll(batch []entry) {
	enc := s.a.encoders.Get().(*encoder)
	done := 0
	defer func() {
		for ; done < len(batch); done++ {
			s.box.left(&batch[done])
		}
		if enc.keep() {
			s.a.encoders.Put(enc)
		}
	}()
	for done < len(batch) {
		e := &batch[done]
		switch {
		case e.channel != nil:
			s.writeChannel(enc, e)
		case e.result != nil:
			s.writeResult(enc, e)
		default:
			s.send(websocket.TextMessage, e.text)
		}
		done++
		s.box.left(e)
	}
}

func (s *session) writeResult(enc *encoder, e *entry) {
	var src source
	if p := e.lane.pulled; p != nil {
		src = p.source
	}
	if s.box.dead() {
		return
	}
	msg, isBinary := enc.encode(e.result, s.query.outputs, src, nil)
	kind := websocket.TextMessage
	if isBinary {
		kind = websocket.BinaryMessage
	}
	s.send(kind, msg)
}

// send writes one message. When the client does not take it in time, or is not
// there any more, the session ends.
func (s *session) send(kind int, msg []byte) {
	if s.broken.Load() {
		return
	}
	_ = s.ws.SetWriteDeadline(time.Now().Add(s.a.opts.WriteWait))
	if err := s.ws.WriteMessage(kind, msg); err != nil {
		s.writeFailed(err)
	}
}

func (s *session) writeFailed(err error) {
	why := EndGone
	if timedOut(err) && s.mux == nil { // else the session outlives what may be a network that is lost
		why = EndSlow
	}
	s.end(ending{why: why})
	s.broken.Store(true)
	if s.mux == nil { // else the session may be resumed
		s.box.close()
	}
}

// ping asks whether the client is there, and closes a session that sent nothing
// for too long.
func (s *session) ping() {
	if idle := s.a.opts.Idle; idle > 0 && !s.pulling.Load() && time.Since(s.started)-time.Duration(s.lastMessage.Load()) > idle {
		s.end(ending{EndIdle, closeIdle, stream.Errorf(stream.Timeout, "", "no message came for %v", idle)})
		return
	}
	if err := s.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.a.opts.WriteWait)); err != nil && err != websocket.ErrCloseSent {
		s.writeFailed(err)
	}
}

// farewell says why the session ends.
func (s *session) farewell() {
	e := &s.cause
	if e.code == 0 || s.box.dead() || s.broken.Load() {
		return
	}
	text := string(e.why)
	if e.err != nil && s.v1() {
		s.send(websocket.TextMessage, fatalMessage(e.err))
	} else if e.err != nil {
		s.send(websocket.TextMessage, errorMessage(e.err))
	}
	_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(e.code, text), time.Now().Add(s.a.opts.WriteWait))
}
