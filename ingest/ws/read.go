package ws

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/buf"
	"millrace/internal/codec"
	"millrace/stream"
)

const (
	// firstGuess is the lease for a session's first message.
	firstGuess = 32 << 10
	// leastGuess bounds what later ones shrink to.
	leastGuess = 1 << 10
)

// errTooLarge is for a message over Options.MaxMessage.
var errTooLarge = errors.New("message too large")

// read reads messages until the session ends.
func (s *session) read() {
	s.ws.SetPongHandler(func(string) error { s.alive(false); return nil })
	answer := s.ws.PingHandler()
	s.ws.SetPingHandler(func(data string) error { s.alive(false); return answer(data) })
	s.alive(true)
	for !s.over() {
		if s.mux == nil && s.main.full() {
			if !s.main.wait(s.main.window, s.closing) {
				return
			}
			s.alive(true) // nothing was read, so the client could not show itself
			continue
		}
		kind, r, err := s.ws.NextReader()
		if err != nil {
			s.readFailed(err)
			return
		}
		s.alive(false)
		s.lastMessage.Store(int64(time.Since(s.started)))
		switch {
		case kind == websocket.BinaryMessage && s.mux != nil:
			err = s.media(r)
		case kind == websocket.BinaryMessage:
			err = s.frame(r)
		default:
			err = s.text(r)
		}
		if err != nil {
			s.readFailed(err)
			return
		}
	}
}

// alive notes that the client showed itself: it has time until the ping after
// the next one. Setting a deadline has its price, so it is not set at each sign
// of life, unless now.
func (s *session) alive(now bool) {
	t, wait := time.Now(), s.a.opts.PingEvery+s.a.opts.PongWait
	if !now && t.Sub(s.extends) < wait/32 {
		return
	}
	s.extends = t
	_ = s.conn.SetReadDeadline(t.Add(wait))
	if s.over() { // end may have set its own just before
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// readFailed ends the session for what ended the reading.
func (s *session) readFailed(err error) {
	var closed *websocket.CloseError
	switch {
	case s.over():
	case errors.Is(err, errTooLarge):
		s.end(ending{EndTooLarge, websocket.CloseMessageTooBig,
			stream.Errorf(stream.TooLarge, "limits.max_message", "a message is larger than %d bytes", s.a.opts.MaxMessage)})
	case errors.As(err, &closed):
		why := EndClient
		if closed.Code == websocket.CloseAbnormalClosure {
			why = EndGone
		}
		s.end(ending{why: why})
	case isNetwork(err):
		s.end(ending{why: EndGone})
	default: // gorilla has sent the close frame, 1002
		s.end(ending{why: EndMalformed})
	}
}

// isNetwork tells a connection that failed from a client that does not speak
// the protocol.
func isNetwork(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// timedOut also knows gorilla's own error, which hides the system's.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// frame takes one binary message: it gets a seq, and exactly one reply. The
// error is the connection's.
func (s *session) frame(r io.Reader) error {
	if s.query.calls {
		s.say(stream.Errorf(stream.InvalidArgument, "", "a call is a text message: frames go to /v2/models/NAME/stream"))
		return s.skip(r)
	}
	seq := s.main.take()
	lease, err := s.fill(r)
	switch {
	case errors.Is(err, buf.ErrBudget):
		s.main.drop(seq, stream.Memory)
		s.main.stream.MarkDiscontinuity()
		return s.skip(r)
	case err != nil:
		// The frame never arrived whole: it was not accepted, and needs no reply.
		s.main.unwritten.Add(-1)
		return err
	}
	if p := s.puller; p != nil && p.running() {
		lease.Release()
		s.main.fail(seq, stream.Errorf(stream.Conflict, "", `a video is being pulled: send {"stop":true} before frames`))
		return nil
	}
	f := stream.Frame{
		Seq: seq, Codec: s.query.codec, Width: s.query.width, Height: s.query.height,
		Region: s.query.region, Payload: lease.Bytes(), Lease: lease,
	}
	if err := recognise(&f, s.main.stream.Model()); err != nil {
		lease.Release()
		s.main.fail(seq, err)
		return nil
	}
	s.main.submit(f)
	return nil
}

// fill reads a message into a lease, which is taken only now that the message
// has begun: sessions at rest hold none. Errors are buf.ErrBudget, with part of
// the message unread, errTooLarge, and the connection's.
func (s *session) fill(r io.Reader) (*buf.Buf, error) {
	most := s.a.opts.MaxMessage
	lease, err := s.backend.Memory().Lease(min(s.guess, most))
	if err != nil {
		return nil, err
	}
	lease.Resize(lease.Cap())
	n := 0
	for err == nil {
		var m int
		if n < lease.Len() {
			m, err = r.Read(lease.Bytes()[n:])
		} else if m, err = r.Read(s.one[:]); m > 0 { // one byte tells a message that just fits from a larger one
			if lease, err = s.grow(lease); err != nil {
				return nil, err
			}
			lease.Bytes()[n] = s.one[0]
		}
		n += m
		s.alive(false)
		if n > most {
			err = errTooLarge
		}
	}
	if err != io.EOF {
		lease.Release()
		return nil, err
	}
	lease.Resize(n)
	if n > s.guess {
		s.guess = n + n/8
	} else {
		s.guess = max(s.guess-(s.guess-n)/8, leastGuess)
	}
	return lease, nil
}

// grow moves the message to a lease of twice the size, and releases the old one
// in every case.
func (s *session) grow(old *buf.Buf) (*buf.Buf, error) {
	defer old.Release()
	lease, err := s.backend.Memory().Lease(2 * old.Len())
	if err != nil {
		return nil, err
	}
	lease.Resize(lease.Cap())
	copy(lease.Bytes(), old.Bytes())
	return lease, nil
}

// skip reads over the rest of a message.
func (s *session) skip(r io.Reader) error {
	n, err := io.CopyN(io.Discard, r, int64(s.a.opts.MaxMessage)+1)
	switch {
	case n > int64(s.a.opts.MaxMessage):
		return errTooLarge
	case err == io.EOF:
		return nil
	}
	return err
}

// recognise settles the frame's codec, and says what is wrong with a frame that
// the model is not worth asking about.
func recognise(f *stream.Frame, m *stream.Model) error {
	if len(f.Payload) == 0 {
		return stream.Errorf(stream.InvalidArgument, "", "the message is empty: send one frame in each")
	}
	switch f.Codec {
	case stream.RGB24:
		return checkRaw(f, codec.RGB24)
	case stream.NV12:
		return checkRaw(f, codec.NV12)
	case stream.Auto:
	default:
		return nil
	}
	switch kind := codec.Sniff(f.Payload); {
	case !m.Any && m.Image == nil:
		f.Codec = stream.Opaque
	case kind == codec.JPEG:
		f.Codec = stream.JPEG
	case kind == codec.PNG:
		f.Codec = stream.PNG
	case kind == codec.WebP:
		f.Codec = stream.WebP
	case m.Any:
		f.Codec = stream.Opaque
	default:
		return stream.Errorf(stream.Unsupported, "codec", "not a picture: model %s takes JPEG, PNG and WebP, or raw frames named by ?codec=", m.Name)
	}
	return nil
}

func checkRaw(f *stream.Frame, format codec.RawFormat) error {
	if want := format.Size(f.Width, f.Height); want != len(f.Payload) {
		return stream.Errorf(stream.InvalidArgument, "", "the message has %d bytes: a frame of %s with %d x %d pixels has %d", len(f.Payload), f.Codec, f.Width, f.Height, want)
	}
	return nil
}

// text takes one text message. The error is the connection's; what is wrong
// with the message is told to the client.
func (s *session) text(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return err
	}
	if len(b) > maxText {
		if err := s.skip(r); err != nil {
			return err
		}
		s.say(stream.Errorf(stream.TooLarge, "", "a text message has at most %d bytes: send frames as binary messages", maxText))
		return nil
	}
	if s.mux != nil {
		s.control(b)
		return nil
	}
	parse := parseOrder
	if s.query.calls {
		parse = parseCall
	}
	o, err := parse(b)
	if err == nil {
		err = s.obey(o)
	}
	if err != nil {
		s.sayTo(o.id, err)
	}
	return nil
}

// say tells the client of an error that belongs to no frame.
func (s *session) say(err error) { s.sayTo("", err) }

// sayTo tells the client of an error that belongs to a call, if id is not "".
func (s *session) sayTo(id string, err error) {
	s.tell(append(appendError(appendID([]byte{'{'}, id), err), '}'))
}

func (s *session) tell(text []byte) {
	if !s.box.push(entry{text: text}) {
		s.end(ending{why: EndSlow})
	}
}
