package client

import (
	"bytes"
	"errors"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// standing is what an ending says of its stream as a whole.
type standing struct {
	sid   uint32
	ack   uint64 // frames that have ended in all; 0 = not told
	limit uint64 // of credit
}

// message takes one message of the server, whose memory is used again. An error
// is the session's.
func (s *Session) message(kind int, msg []byte) error {
	if kind == websocket.BinaryMessage {
		r, of, err := parseBinary(bytes.Clone(msg))
		if err == nil {
			s.ending(of, one(r.Seq), r)
		}
		return err
	}
	m, err := wire.ParseControl(msg, wire.Server)
	switch {
	case errors.Is(err, wire.ErrType): // of a later server
		return nil
	case err != nil:
		return notOurs(err)
	}
	switch m := m.(type) {
	case *wire.Result:
		r, _, err := parseText(msg)
		if err != nil {
			return err
		}
		r.CaptureUS, r.Version = m.CaptureUS, m.Version
		s.ending(standing{m.SID, m.Ack, m.Limit}, one(m.Seq), r)
	case *wire.Drop:
		s.ending(standing{m.SID, m.Ack, m.Limit}, m.Seqs, Reply{Dropped: stream.Reason(m.Reason)})
	case *wire.ErrorMessage:
		s.failure(m)
	case *wire.Credit:
		s.credit(m)
	case *wire.Opened:
		s.opened(m)
	case *wire.Closed:
		s.closedBy(m)
	case *wire.Advise:
		if ch := s.channel(m.SID); ch != nil && ch.opts.OnAdvice != nil {
			ch.opts.OnAdvice(Advice{m.FPS, m.Width, m.Height, m.Quality, m.KeyFrame})
		}
	case *wire.Stats:
		if ch := s.channel(m.SID); ch != nil && ch.opts.OnStats != nil {
			ch.opts.OnStats(Stats{totals(m.Counts), m.Waiting, m.FPS, time.Duration(m.AgeUS) * time.Microsecond})
		}
	case *wire.GoAway:
		s.note(stream.Errorf(stream.Draining, "", "the server is shutting down"))
	}
	return nil
}

func one(seq uint64) []wire.Range { return []wire.Range{{seq, seq}} }

// channel returns the channel of a number, nil for one that has ended.
func (s *Session) channel(sid uint32) *Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[sid]
}

// note keeps what the server said of the connection's end; the first counts.
func (s *Session) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = err
	}
}

func (s *Session) failure(m *wire.ErrorMessage) {
	switch {
	case m.Fatal:
		s.note(errorOf(m))
	case m.SID == nil:
	case m.Seq != nil && *m.Seq != configSeq:
		s.ending(standing{*m.SID, m.Ack, m.Limit}, one(*m.Seq), Reply{Err: errorOf(m)})
	default:
		ch := s.channel(*m.SID)
		switch {
		case ch == nil:
		case ch.state == opening: // which only this goroutine changes
			s.endChannel(ch, errorOf(m))
		case ch.opts.OnError != nil:
			ch.opts.OnError(errorOf(m))
		}
	}
}

func (s *Session) opened(m *wire.Opened) {
	ch := s.channel(m.SID)
	if ch == nil || ch.state != opening {
		return
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	ch.state, ch.limit = open, m.CreditLimit
	ch.policy = policyOf(m.Policy)
	var say []wire.Message
	if now := merge(ch.policy, ch.want); now != ch.policy { // asked for meanwhile
		ch.policy = now
		now.Mode = ""
		say = append(say, &wire.Update{SID: ch.sid, Policy: changeOf(now)})
	}
	if ch.paused {
		say = append(say, &wire.Pause{SID: ch.sid})
	}
	if ch.closing {
		say = append(say, &wire.Close{SID: ch.sid})
	}
	l := s.link
	ch.wake()
	s.mu.Unlock()
	s.configure(l, ch)
	s.say(l, say...)
}

func (s *Session) credit(m *wire.Credit) {
	ch := s.channel(m.SID)
	if ch == nil {
		return
	}
	s.handOver(ch, func() { s.out = ch.settle(s.out[:0], nil, m.Ack, m.CreditLimit, Reply{}) })
}

// ending takes the ending of the frames in seqs, or a part of a result.
func (s *Session) ending(of standing, seqs []wire.Range, r Reply) {
	ch := s.channel(of.sid)
	if ch == nil {
		return
	}
	r.Got = time.Now()
	s.handOver(ch, func() { s.out = ch.settle(s.out[:0], seqs, of.ack, of.limit, r) })
}

// handOver hands the replies over that f, called with s.mu held, puts into s.out.
func (s *Session) handOver(ch *Channel, f func()) {
	s.mu.Lock()
	f()
	ch.busy = len(s.out) > 0
	busy := ch.busy
	ch.wake()
	s.mu.Unlock()
	if !busy {
		return
	}
	for i := range s.out {
		ch.deliver(s.out[i])
	}
	clear(s.out)
	s.mu.Lock()
	ch.busy = false
	ch.wake()
	s.mu.Unlock()
}

func (ch *Channel) deliver(r Reply) {
	if ch.opts.OnReply != nil {
		ch.opts.OnReply(r)
		return
	}
	select {
	case ch.replies <- r:
		return
	default:
	}
	select {
	case ch.replies <- r:
	case <-ch.quit:
	case <-ch.s.hurry:
	}
}

// settle appends to out what becomes of the frames that wait, in their order: r
// of those in seqs, which rise. ack is how many of the stream the server has
// ended. An ending that has come before changes nothing; one that the server has
// written and no longer keeps shows as a gap in ack, and is lost. s.mu is held.
func (ch *Channel) settle(out []Reply, seqs []wire.Range, ack, limit uint64, r Reply) []Reply {
	if limit > ch.limit {
		ch.limit = limit
	}
	if r.Partial {
		for i := range ch.waiting {
			if w := &ch.waiting[i]; !w.lost && w.seq == r.Seq {
				r.Sent = w.sent
				out = append(out, r)
			}
		}
		seqs = nil
	}
	hit := ch.hit(seqs)
	n := uint64(0)
	for i := range ch.waiting {
		if hit(&ch.waiting[i]) {
			n++
		}
	}
	missing := uint64(0)
	if ack > ch.ended+n {
		missing = ack - ch.ended - n
	}
	ch.ended = max(ch.ended+n, ack)
	if n == 0 && missing == 0 {
		return out
	}
	hit = ch.hit(seqs)
	keep := ch.waiting[:0]
	for _, w := range ch.waiting {
		switch {
		case hit(&w):
			r.Seq, r.Sent = w.seq, w.sent
			out = append(out, r)
			ch.live--
		case missing > 0 && !w.lost:
			missing--
			ch.live--
			out = append(out, w.reply())
		default:
			keep = append(keep, w)
		}
	}
	ch.waiting = keep
	return ch.flushLost(out)
}

// hit returns what says whether a frame is one of seqs, for frames that rise.
func (ch *Channel) hit(seqs []wire.Range) func(w *waiting) bool {
	return func(w *waiting) bool {
		for len(seqs) > 0 && seqs[0][1] < w.seq {
			seqs = seqs[1:]
		}
		return len(seqs) > 0 && seqs[0][0] <= w.seq && !w.lost
	}
}

// flushLost appends the endings of lost frames whose turn it is. s.mu is held.
func (ch *Channel) flushLost(out []Reply) []Reply {
	n := 0
	for n < len(ch.waiting) && ch.waiting[n].lost {
		out = append(out, ch.waiting[n].reply())
		n++
	}
	ch.waiting = append(ch.waiting[:0], ch.waiting[n:]...)
	return out
}

// reply is the ending of a frame that was lost.
func (w *waiting) reply() Reply {
	return Reply{
		Seq: w.seq, Sent: w.sent, Got: time.Now(), Lost: true,
		Err: stream.Errorf(stream.Unavailable, "", "the frame, or its ending, was lost with the connection"),
	}
}

// closedBy takes the end of a stream.
func (s *Session) closedBy(m *wire.Closed) {
	ch := s.channel(m.SID)
	if ch == nil {
		return
	}
	s.mu.Lock()
	ch.totals = totals(m.Totals)
	told := s.told
	s.mu.Unlock()
	var err error
	switch stream.CloseReason(m.Reason) {
	case stream.ByClient:
	case stream.ByUnload:
		err = stream.Errorf(stream.Unloaded, "", "model %s was unloaded", ch.model)
	case stream.ByDrain:
		err = stream.Errorf(stream.Draining, "", "the server is shutting down")
	case stream.Idle:
		err = stream.Errorf(stream.Timeout, "", "nothing was sent for too long")
	case stream.SlowConsumer:
		err = stream.Errorf(stream.Overloaded, "", "replies were not taken fast enough")
	default:
		if err = told; err == nil {
			err = stream.Errorf(stream.Internal, "", "the server closed the stream: %s", m.Reason)
		}
	}
	s.endChannel(ch, err)
}

// endChannel ends a channel, with what is left of it, for err. It is called by
// the session's goroutine, once.
func (s *Session) endChannel(ch *Channel, err error) {
	s.mu.Lock()
	delete(s.channels, ch.sid)
	ch.state, ch.err = closed, err
	s.mu.Unlock()
	s.handOver(ch, func() {
		ch.lose(func(*waiting) bool { return true })
		s.out = ch.flushLost(s.out[:0])
	})
	close(ch.replies)
	close(ch.done)
}
