package client

import (
	"bytes"
	"errors"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// progress is the state of the whole stream in an ending.
type progress struct {
	sid   uint32
	ended uint64 // number of all ended frames; 0 = not given
	limit uint64 // the credit limit
}

// message handles one message of the server; the memory of msg is reused afterwards. An error ends the session.
func (s *Session) message(kind int, msg []byte) error {
	if kind == websocket.BinaryMessage {
		r, p, err := binaryReply(bytes.Clone(msg))
		if err == nil {
			s.ending(p, single(r.Seq), r)
		}
		return err
	}
	m, err := wire.ParseControl(msg, wire.Server)
	switch {
	case errors.Is(err, wire.ErrType): // of a newer server
		return nil
	case err != nil:
		return badReply(err)
	}
	switch m := m.(type) {
	case *wire.Result:
		r, err := textReply(m, msg)
		if err != nil {
			return err
		}
		s.ending(progress{m.SID, m.Ack, m.Limit}, single(m.Seq), r)
	case *wire.Drop:
		s.ending(progress{m.SID, m.Ack, m.Limit}, m.Seqs, Reply{Dropped: stream.Reason(m.Reason)})
	case *wire.ErrorMessage:
		s.failure(m)
	case *wire.Credit:
		s.credit(m)
	case *wire.Opened:
		s.opened(m)
	case *wire.Closed:
		s.closedByServer(m)
	case *wire.Advise:
		if st := s.streamOf(m.SID); st != nil && st.opts.OnAdvice != nil {
			st.opts.OnAdvice(Advice{m.FPS, m.Width, m.Height, m.Quality, m.KeyFrame})
		}
	case *wire.Stats:
		if st := s.streamOf(m.SID); st != nil && st.opts.OnStats != nil {
			st.opts.OnStats(Stats{Totals(m.Counts), m.Waiting, m.FPS, time.Duration(m.AgeUS) * time.Microsecond})
		}
	case *wire.GoAway:
		s.setServerErr(stream.Errorf(stream.Draining, "", "the server is shutting down"))
	}
	return nil
}

func single(seq uint64) []wire.Range { return []wire.Range{{seq, seq}} }

// streamOf returns the stream with the id sid, nil if the stream has ended.
func (s *Session) streamOf(sid uint32) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[sid]
}

// setServerErr stores why the server will close the connection; only the first reason is
// kept.
func (s *Session) setServerErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serverErr == nil {
		s.serverErr = err
	}
}

func (s *Session) failure(m *wire.ErrorMessage) {
	switch {
	case m.Fatal:
		s.setServerErr(errorOf(m))
	case m.SID == nil:
	case m.Seq != nil && *m.Seq != configSeq:
		s.ending(progress{*m.SID, m.Ack, m.Limit}, single(*m.Seq), Reply{Err: errorOf(m)})
	default:
		st := s.streamOf(*m.SID)
		switch {
		case st == nil:
		case st.state == opening: // only this goroutine changes the state
			s.endStream(st, errorOf(m))
		case st.opts.OnError != nil:
			st.opts.OnError(errorOf(m))
		}
	}
}

func (s *Session) opened(m *wire.Opened) {
	st := s.streamOf(m.SID)
	if st == nil || st.state != opening {
		return
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	st.state, st.limit = open, m.CreditLimit
	st.policy = policyOf(m.Policy)
	var messages []wire.Message
	if st.updated { // since the open message was sent
		st.policy = st.update.applyTo(st.policy)
		messages = append(messages, st.update.message(st.sid))
	}
	if st.paused {
		messages = append(messages, &wire.Pause{SID: st.sid})
	}
	if st.closing {
		messages = append(messages, &wire.Close{SID: st.sid})
	}
	conn := s.conn
	st.notifyChange()
	s.mu.Unlock()
	s.sendConfig(conn, st)
	s.sendControl(conn, messages...)
}

func policyOf(p wire.Policy) stream.Policy {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return stream.Policy{Mode: stream.Mode(p.Mode), MaxAge: ms(p.MaxAgeMS), Deadline: ms(p.DeadlineMS),
		MaxFPS: p.MaxFPS, Window: p.Window}
}

func (s *Session) credit(m *wire.Credit) {
	st := s.streamOf(m.SID)
	if st == nil {
		return
	}
	s.deliver(st, func() { s.out = st.settle(s.out[:0], nil, m.Ack, m.CreditLimit, Reply{}) })
}

// ending handles the ending of the frames in seqs, or a part of a result.
func (s *Session) ending(p progress, seqs []wire.Range, r Reply) {
	st := s.streamOf(p.sid)
	if st == nil {
		return
	}
	r.Got = time.Now()
	s.deliver(st, func() { s.out = st.settle(s.out[:0], seqs, p.ended, p.limit, r) })
}

// deliver calls collect with s.mu held, which puts replies into s.out, and then delivers these replies.
func (s *Session) deliver(st *Stream, collect func()) {
	s.mu.Lock()
	collect()
	st.delivering = len(s.out) != 0
	delivering := st.delivering
	st.notifyChange()
	s.mu.Unlock()
	if !delivering {
		return
	}
	for i := range s.out {
		st.handOver(s.out[i])
	}
	clear(s.out)
	s.mu.Lock()
	st.delivering = false
	st.notifyChange()
	s.mu.Unlock()
}

func (st *Stream) handOver(r Reply) {
	if st.opts.OnReply != nil {
		st.opts.OnReply(r)
		return
	}
	select {
	case st.replies <- r:
		return
	default:
	}
	select {
	case st.replies <- r:
	case <-st.quit:
	case <-st.s.discard:
	}
}

// settle appends the endings of frames to out, in order: r for the frames in seqs, which must be sorted. ack is the
// number of frames of the stream ended by the server. A repeated ending changes nothing. An ending written but no
// longer kept by the server shows as a gap in ack: the frame is lost. s.mu is held.
func (st *Stream) settle(out []Reply, seqs []wire.Range, ack, limit uint64, r Reply) []Reply {
	st.limit = max(st.limit, limit)
	if r.Partial {
		for i := range st.unended {
			if u := &st.unended[i]; !u.lost && u.seq == r.Seq {
				r.Sent = u.sent
				out = append(out, r)
			}
		}
		seqs = nil
	}
	ends := endsIn(seqs)
	n := uint64(0)
	for i := range st.unended {
		if ends(&st.unended[i]) {
			n++
		}
	}
	before := st.ended + n
	st.ended = max(before, ack)
	missing := st.ended - before
	if n == 0 && missing == 0 {
		return out
	}
	ends = endsIn(seqs)
	keep := st.unended[:0]
	for _, u := range st.unended {
		switch {
		case ends(&u):
			r.Seq, r.Sent = u.seq, u.sent
			out = append(out, r)
			st.atServer--
		case missing > 0 && !u.lost:
			missing--
			st.atServer--
			out = append(out, u.lostReply())
		default:
			keep = append(keep, u)
		}
	}
	st.unended = keep
	return st.takeLost(out)
}

// endsIn returns a function that reports whether a frame is in seqs. The function must be called with frames in
// ascending order.
func endsIn(seqs []wire.Range) func(*unended) bool {
	return func(u *unended) bool {
		for len(seqs) > 0 && seqs[0][1] < u.seq {
			seqs = seqs[1:]
		}
		return len(seqs) > 0 && seqs[0][0] <= u.seq && !u.lost
	}
}

// takeLost appends the endings of lost frames that follow no unended frame. s.mu is held.
func (st *Stream) takeLost(out []Reply) []Reply {
	n := 0
	for n < len(st.unended) && st.unended[n].lost {
		out = append(out, st.unended[n].lostReply())
		n++
	}
	st.unended = append(st.unended[:0], st.unended[n:]...)
	return out
}

// lostReply returns the ending of a lost frame.
func (u *unended) lostReply() Reply {
	return Reply{
		Seq: u.seq, Sent: u.sent, Got: time.Now(), Lost: true,
		Err: stream.Errorf(stream.Unavailable, "", "the frame, or its ending, was lost with the connection"),
	}
}

// closedByServer handles the end of a stream.
func (s *Session) closedByServer(m *wire.Closed) {
	st := s.streamOf(m.SID)
	if st == nil {
		return
	}
	s.mu.Lock()
	st.totals = Totals(m.Totals)
	serverErr := s.serverErr
	s.mu.Unlock()
	var err error
	switch stream.CloseReason(m.Reason) {
	case stream.ByClient:
	case stream.ByUnload:
		err = stream.Errorf(stream.Unloaded, "", "model %s was unloaded", st.model)
	case stream.ByDrain:
		err = stream.Errorf(stream.Draining, "", "the server is shutting down")
	case stream.Idle:
		err = stream.Errorf(stream.Timeout, "", "no frame was sent for too long")
	case stream.SlowConsumer:
		err = stream.Errorf(stream.Overloaded, "", "replies were not received fast enough")
	default:
		if err = serverErr; err == nil {
			err = stream.Errorf(stream.Internal, "", "the server closed the stream: %s", m.Reason)
		}
	}
	s.endStream(st, err)
}

// endStream ends a stream and its remaining frames with err. The session's goroutine calls endStream once.
func (s *Session) endStream(st *Stream, err error) {
	s.mu.Lock()
	delete(s.streams, st.sid)
	st.state, st.err = closed, err
	s.mu.Unlock()
	s.deliver(st, func() {
		st.markLost(func(*unended) bool { return true })
		s.out = st.takeLost(s.out[:0])
	})
	close(st.replies)
	close(st.done)
	if st.ownsSession {
		s.stop(err)
	}
}
