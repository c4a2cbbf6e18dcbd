package conn

import (
	"net"
	"net/http"
	"time"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/processors"
	"millrace/internal/wire"
	"millrace/stream/buf"
)

// Conn is one WebSocket connection. Only the reader goroutine (serve) reads from the connection; only the writer
// goroutine writes messages.
type Conn struct {
	*socket
	reader
	Outbox *Outbox // the writer's source of messages; changed by SwitchOutbox

	writer   writeLoop
	rejected error         // why the connection is rejected, or nil
	gone     chan struct{} // closed when the connection has ended
	// when the credentials of this client end, so does the connection; nil: credentials never end the connection
	of *ingest.Client
}

// newConn returns a connection; memory holds its messages.
func newConn(s *shared, conn net.Conn, memory *buf.Pool, f Form) *Conn {
	k := &socket{shared: s, net: conn, form: f, started: time.Now(), closing: make(chan struct{})}
	k.link = newLink(conn, memory, k.started)
	c := &Conn{socket: k, Outbox: newOutbox(int64(s.opts.OutboxMessages), s.opts.OutboxBytes, &s.outboxBytes),
		gone: make(chan struct{})}
	c.reader = reader{socket: k, memory: memory, share: accept.MemoryOf(conn), estimate: firstEstimate,
		tell: func(text []byte) {
			c.Push(Entry{Text: text})
		}}
	c.writer.Writer.socket = k
	c.writer.outbox, c.writer.done, c.writer.cut = c.Outbox, make(chan struct{}), make(chan struct{})
	return c
}

// Turns returns the turns of long messages.
func (c *Conn) Turns() *processors.Turns { return c.opts.Turns }

// EndWith ends the connection when the credentials of the client end. Call EndWith before Registry.Start.
func (c *Conn) EndWith(of *ingest.Client) { c.of = of }

// Push puts an entry into the outbox, and ends the connection when the outbox is full. If the connection switches
// outboxes, only the reader may call Push.
func (c *Conn) Push(e Entry) {
	if !c.Outbox.Push(e) {
		c.End(Ending{Reason: EndSlow})
	}
}

// SwitchOutbox makes the writer continue with another outbox as soon as its present outbox is empty; the writer calls
// first before the switch. SwitchOutbox waits for the switch, and returns false when the writer has ended. Only the
// reader may call SwitchOutbox.
func (c *Conn) SwitchOutbox(to *Outbox, first func(*Writer)) bool {
	if !c.writer.continueWith(c.Outbox, to, first) {
		return false
	}
	c.Outbox = to
	return true
}

// serve is the reader goroutine, for the lifetime of the connection.
func (c *Conn) serve(r *http.Request, buffered []byte) {
	defer c.close()
	defer c.of.OnEnd(func(err error) { c.End(Ending{EndRevoked, wire.CloseCodeOf(err), err}) })()
	watchPeer(c.net, c.silence())
	if err := c.upgrade(r, buffered); err != nil {
		c.End(Ending{Reason: EndRefused})
		return
	}
	if f := c.opts.Hooks.Opened; f != nil {
		f()
	}
	started := c.writer.start()
	switch {
	case c.rejected != nil:
		c.End(rejection(c.rejected)) // the writer sends the error
		return
	case !started:
		return
	}
	if err := c.protocol.Open(); err != nil {
		c.End(refusal(err))
		return
	}
	c.read()
}

// close ends the connection in order: no more frames are read, every frame ends, every
// ending is sent, the client gets the reason, and the connection is closed. When the
// client does not read any more, replies are discarded instead.
func (c *Conn) close() {
	if !c.Ended() { // a panic of the reader
		c.Fault()
	}
	<-c.closing
	if now, used := time.Now(), c.used(); used.isSignificant(now) {
		c.floods.keep(c.client, used, now)
	}
	c.link.release()
	c.protocol.Close(c.ending)
	c.linger()
	_ = c.net.Close()
	if f := c.opts.Hooks.Closed; f != nil && c.ws != nil {
		f(c.ending.Reason, time.Since(c.started))
	}
	c.ends.add(string(c.ending.Reason))
}

// Drain is for Protocol.Close: Drain calls closeStreams, which returns when every frame has ended, and then makes the
// writer write the queued messages and send the reason for the end. If the client has stopped reading, the queued
// messages are discarded.
func (c *Conn) Drain(closeStreams func()) {
	if c.ending.Gone() {
		_ = c.net.Close()
		c.Outbox.Close()
	}
	closeStreams()
	c.writer.finish()
	c.Outbox.Close() // discards entries pushed after the writer failed
}

// takeOverTime limits the write in progress when another connection takes over the session.
const takeOverTime = time.Second

// Cut is for Protocol.Close: Cut ends the writer and leaves the queued messages in the outbox for another connection.
// A client still connected gets the reason.
func (c *Conn) Cut() {
	if c.ending.Gone() {
		_ = c.net.Close()
	}
	c.link.cut(time.Now().Add(takeOverTime)) // limits the write of a message that the client does not read
	c.writer.stop()
	c.link.uncut()
	if !c.ending.Gone() {
		c.writer.writeEnding()
	}
}
