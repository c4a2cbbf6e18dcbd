package conn

import (
	"errors"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	// firstEstimate is the size of the lease for a connection's first message.
	firstEstimate = 32 << 10
	// minEstimate is the smallest size of later leases.
	minEstimate = 1 << 10
)

// MaxText is the largest text message, in bytes.
const MaxText = wire.MaxText

// errTooLarge is the error for a message over Options.MaxMessage.
var errTooLarge = errors.New("message too large")

// reader is the reading part of a connection. Only the reader goroutine uses reader.
type reader struct {
	socket   *socket
	protocol Protocol
	tell     func(text []byte) // puts a text into the outbox
	memory   *buf.Pool
	share    *buf.ClientShare // messages count in this share
	estimate int              // likely size of the next message's lease
	last     time.Duration    // when something was last read from the network, since socket.started
	extended time.Duration    // when the read deadline was last set, likewise
	message  incoming         // the message being read
	one      [1]byte

	pings    httpd.Pings
	texts    httpd.Bucket
	discards httpd.Bucket // of chunks
}

// incoming is a message being read. The number of bytes received sets the client's deadline for the message: other
// signs of life, such as single bytes or pings, do not extend the deadline.
type incoming struct {
	r     io.Reader     // nil: no message is being read
	began time.Duration // since socket.started
	n     int           // bytes received
}

// Read implements io.Reader.
func (m *incoming) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.n += n
	return n, err
}

// limit returns when the message must have arrived further, since socket.started.
func (m *incoming) limit() time.Duration {
	return m.began + httpd.ArrivalTime(m.n)
}

// read reads messages until the connection ends.
func (in *reader) read() {
	in.answerControl()
	in.socket.link.onRead = in.alive
	in.extend(time.Since(in.socket.started))
	for !in.socket.Ended() {
		kind, r, err := in.socket.ws.NextReader()
		if err != nil {
			in.readFailed(err)
			return
		}
		in.socket.lastMessage.Store(int64(in.last))
		in.message = incoming{r: r, began: in.last}
		if kind == websocket.BinaryMessage {
			err = in.protocol.Binary(&in.message)
		} else {
			err = in.text(&in.message)
		}
		if err != nil {
			in.readFailed(err)
			return
		}
		in.message.r = nil
	}
}

// controlWait is the longest time for the answer to a ping or a close.
const controlWait = time.Second

// answerControl answers pings and closes. A failed answer has no effect: a failed write, or the reader, ends the
// connection.
func (in *reader) answerControl() {
	in.socket.ws.SetPingHandler(func(data string) error {
		if in.Ping() {
			_ = in.socket.link.control(websocket.PongMessage, []byte(data), controlWait)
		}
		return nil
	})
	in.socket.ws.SetCloseHandler(func(code int, _ string) error {
		_ = in.socket.link.control(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), controlWait)
		return nil
	})
}

// text passes a text message to the protocol. An error ends the connection.
func (in *reader) text(r io.Reader) error {
	if p, ok := in.protocol.(TextFrames); ok && p.TakesText() {
		return p.TextFrame(r)
	}
	if !in.texts.Take(time.Now(), textBurst, textRate) {
		in.socket.flooded(stream.Errorf(stream.FlowControl, "",
			"%d text messages a second are allowed: send frames as binary messages", textRate))
		return nil
	}
	msg, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	switch {
	case err != nil:
		return err
	case len(msg) > MaxText:
		if err := in.Skip(r); err != nil {
			return err
		}
		err := stream.Errorf(stream.TooLarge, "",
			"a text message has at most %d bytes: send frames as binary messages", MaxText)
		in.tell(in.socket.form.Error(err, false))
		return nil
	}
	in.protocol.Text(msg)
	return nil
}

// alive records a sign of life of the client (any bytes), and extends the client's deadline to the ping after next.
// Not every sign of life sets the deadline, because setting a deadline costs about as much as a system call.
func (in *reader) alive(now time.Duration) {
	in.last = now
	if now-in.extended >= in.silence()/32 {
		in.extend(now)
	}
}

// Arrived returns the time at which the current message began to arrive. Only the reader goroutine may call Arrived.
func (in *reader) Arrived() stream.Instant {
	return stream.InstantOf(in.socket.started).Add(time.Duration(in.socket.lastMessage.Load()))
}

// ExtendDeadline gives the client the full time for a sign of life from now on. A Protocol calls ExtendDeadline after
// a while without reading.
func (in *reader) ExtendDeadline() {
	now := time.Since(in.socket.started)
	in.message.began = now
	in.alive(now)
}

func (in *reader) extend(now time.Duration) {
	in.extended = now
	until := now + in.silence()
	if in.message.r != nil {
		until = min(until, in.message.limit())
	}
	_ = in.socket.net.SetReadDeadline(in.socket.started.Add(until))
	if in.socket.Ended() { // End may have set its own deadline meanwhile
		_ = in.socket.net.SetReadDeadline(time.Unix(1, 0))
	}
}

// silence is the longest time without a sign of life of the client.
func (in *reader) silence() time.Duration { return in.socket.opts.PingEvery + in.socket.opts.PongWait }

// readFailed ends the connection after an error of reading.
func (in *reader) readFailed(err error) {
	var closed *websocket.CloseError
	switch {
	case in.socket.Ended():
	case errors.Is(err, errTooLarge):
		in.socket.End(Ending{EndTooLarge, wire.CloseTooLarge,
			stream.Errorf(stream.TooLarge, "limits.max_message", "a message is larger than %d bytes",
				in.socket.opts.MaxMessage)})
	case in.message.r != nil && timedOut(err):
		in.socket.End(Ending{EndIdle, wire.CloseIdle,
			stream.Errorf(stream.Timeout, "",
				"a message arrives too slowly: send it within %v and a second for each %d bytes, or in parts",
				httpd.ArrivalGrace, httpd.ArrivalRate)})
	case errors.As(err, &closed):
		why := EndClient
		if closed.Code == websocket.CloseAbnormalClosure {
			why = EndGone
		}
		in.socket.End(Ending{Reason: why})
	case isNetwork(err):
		in.socket.End(Ending{Reason: EndGone})
	default: // gorilla has sent the close frame, 1002
		in.socket.End(Ending{Reason: EndMalformed})
	}
}

// Lease reads a message into a lease. Lease takes the lease only when the message has begun, so that idle connections
// hold no lease. The errors are buf.ErrBudget, with part of the message unread, and errors that end the connection.
func (in *reader) Lease(r io.Reader) (*buf.Buf, error) {
	most := in.socket.opts.MaxMessage
	size := min(in.estimate, most)
	lease, err := in.growBuffer(nil, &size, 0)
	n := 0
	for err == nil {
		var m int
		switch {
		case n < lease.Len():
			m, err = r.Read(lease.Bytes()[n:])
		case n < size:
			lease, err = in.growBuffer(lease, &size, n)
		default:
			if m, err = r.Read(in.one[:]); m == 0 { // one more byte shows whether the message just fits or is larger
				break
			}
			size = 2 * size
			if lease, err = in.growBuffer(lease, &size, n); err != nil {
				break
			}
			lease.Bytes()[n] = in.one[0]
		}
		n += m
		if n > most {
			err = errTooLarge
		}
	}
	if err != io.EOF {
		lease.Release()
		return nil, err
	}
	lease.Resize(n)
	if n > in.estimate {
		in.estimate = n + n/8
	} else {
		in.estimate = max(in.estimate-(in.estimate-n)/8, minEstimate)
	}
	return lease, nil
}

// Share returns the share in which messages count; nil = no share.
func (in *reader) Share() *buf.ClientShare { return in.share }

// growBuffer returns room for more of a message of about size bytes; old holds the first n bytes. Without memory,
// growBuffer releases old and returns the error. A lease whose capacity is certain sets size to the capacity.
func (in *reader) growBuffer(old *buf.Buf, size *int, n int) (*buf.Buf, error) {
	lease, err := in.memory.Receive(in.share, old, *size, n)
	if err != nil {
		old.Release()
		return nil, err
	}
	if lease.Whole() {
		lease.Resize(lease.Cap())
		*size = lease.Len()
	}
	return lease, nil
}

// The bounds of discarded video chunks per connection: a burst, and a rate per second. A client in `latest` may
// exceed its credit, and discarding a chunk costs the server hardly more than reading the chunk: above the bounds the
// reader therefore slows down.
const (
	discardBurst, discardRate = 1024, 2048
	// the reader waits in such pauses until the rate permits the next chunk
	discardPause = 10 * time.Millisecond
)

// Discarded counts n discarded chunks, and waits while the chunks exceed the bounds. Only the reader goroutine may
// call Discarded.
func (in *reader) Discarded(n uint64) {
	for range n {
		for !in.discards.Take(time.Now(), discardBurst, discardRate) {
			pause := time.NewTimer(discardPause)
			select {
			case <-pause.C:
			case <-in.socket.closing:
				pause.Stop()
				return
			}
		}
	}
}

// Skip reads and discards the rest of a message.
func (in *reader) Skip(r io.Reader) error {
	n, err := io.CopyN(io.Discard, r, int64(in.socket.opts.MaxMessage)+1)
	switch {
	case n > int64(in.socket.opts.MaxMessage):
		return errTooLarge
	case err == io.EOF:
		return nil
	}
	return err
}
