package conn

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	// firstEstimate is the lease for a connection's first message.
	firstEstimate = 32 << 10
	// minEstimate bounds what later ones shrink to.
	minEstimate = 1 << 10
)

// MaxText bounds a text message, in bytes.
const MaxText = wire.MaxText

// errTooLarge is for a message over Options.MaxMessage.
var errTooLarge = errors.New("message too large")

// reader is the state of the reader goroutine.
type reader struct {
	memory   *buf.Pool
	estimate int       // what the next message's lease is likely to need
	extended time.Time // when the read deadline was last set
	one      [1]byte
}

// read reads messages until the connection is to end.
func (c *Conn) read() {
	c.ws.SetPongHandler(func(string) error { c.alive(); return nil })
	answer := c.ws.PingHandler()
	c.ws.SetPingHandler(func(data string) error { c.alive(); return answer(data) })
	c.ExtendDeadline()
	for !c.Ended() {
		kind, r, err := c.ws.NextReader()
		if err != nil {
			c.readFailed(err)
			return
		}
		c.alive()
		c.lastMessage.Store(int64(time.Since(c.started)))
		if kind == websocket.BinaryMessage {
			err = c.protocol.Binary(r)
		} else {
			err = c.text(r)
		}
		if err != nil {
			c.readFailed(err)
			return
		}
	}
}

// text hands a text message to the protocol. The error is the connection's.
func (c *Conn) text(r io.Reader) error {
	msg, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	switch {
	case err != nil:
		return err
	case len(msg) > MaxText:
		if err := c.Skip(r); err != nil {
			return err
		}
		err := stream.Errorf(stream.TooLarge, "", "a text message has at most %d bytes: send frames as binary messages", MaxText)
		c.Push(Entry{Text: c.form.Error(err, false)})
		return nil
	}
	c.protocol.Text(msg)
	return nil
}

// alive notes a sign of life of the client: it has time until the ping after the next one. Setting a deadline is a system
// call's worth of work, so it is not done at each sign of life.
func (c *Conn) alive() {
	if t, wait := time.Now(), c.silence(); t.Sub(c.reader.extended) >= wait/32 {
		c.extend(t, wait)
	}
}

// ExtendDeadline gives the client time to show itself from now on. It is for a Protocol that has not read for a while.
func (c *Conn) ExtendDeadline() { c.extend(time.Now(), c.silence()) }

func (c *Conn) extend(now time.Time, wait time.Duration) {
	c.reader.extended = now
	_ = c.net.SetReadDeadline(now.Add(wait))
	if c.Ended() { // End may have set its own just before
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	}
}

// silence is how long a client may show no sign of life.
func (c *Conn) silence() time.Duration { return c.registry.opts.PingEvery + c.registry.opts.PongWait }

// readFailed ends the connection for what ended the reading.
func (c *Conn) readFailed(err error) {
	var closed *websocket.CloseError
	switch {
	case c.Ended():
	case errors.Is(err, errTooLarge):
		c.End(Ending{EndTooLarge, wire.CloseTooLarge,
			stream.Errorf(stream.TooLarge, "limits.max_message", "a message is larger than %d bytes", c.registry.opts.MaxMessage)})
	case errors.As(err, &closed):
		why := EndClient
		if closed.Code == websocket.CloseAbnormalClosure {
			why = EndGone
		}
		c.End(Ending{Why: why})
	case isNetwork(err):
		c.End(Ending{Why: EndGone})
	default: // gorilla has sent the close frame, 1002
		c.End(Ending{Why: EndMalformed})
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

// Lease reads a message into a lease, which is taken only now that the message
// has begun: connections at rest hold none. Errors are buf.ErrBudget, with part of
// the message unread, and the connection's.
func (c *Conn) Lease(r io.Reader) (*buf.Buf, error) {
	most := c.registry.opts.MaxMessage
	lease, err := c.reader.memory.Lease(min(c.reader.estimate, most))
	if err != nil {
		return nil, err
	}
	lease.Resize(lease.Cap())
	n := 0
	for err == nil {
		var m int
		if n < lease.Len() {
			m, err = r.Read(lease.Bytes()[n:])
		} else if m, err = r.Read(c.reader.one[:]); m > 0 { // one byte tells a message that just fits from a larger one
			if lease, err = c.grow(lease); err != nil {
				return nil, err
			}
			lease.Bytes()[n] = c.reader.one[0]
		}
		n += m
		c.alive()
		if n > most {
			err = errTooLarge
		}
	}
	if err != io.EOF {
		lease.Release()
		return nil, err
	}
	lease.Resize(n)
	if n > c.reader.estimate {
		c.reader.estimate = n + n/8
	} else {
		c.reader.estimate = max(c.reader.estimate-(c.reader.estimate-n)/8, minEstimate)
	}
	return lease, nil
}

// grow moves the message to a lease of twice the size, and releases the old one
// in every case.
func (c *Conn) grow(old *buf.Buf) (*buf.Buf, error) {
	defer old.Release()
	lease, err := c.reader.memory.Lease(2 * old.Len())
	if err != nil {
		return nil, err
	}
	lease.Resize(lease.Cap())
	copy(lease.Bytes(), old.Bytes())
	return lease, nil
}

// Skip reads over the rest of a message.
func (c *Conn) Skip(r io.Reader) error {
	n, err := io.CopyN(io.Discard, r, int64(c.registry.opts.MaxMessage)+1)
	switch {
	case n > int64(c.registry.opts.MaxMessage):
		return errTooLarge
	case err == io.EOF:
		return nil
	}
	return err
}
