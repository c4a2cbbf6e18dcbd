package conn

import (
	"net"
	"net/http"
	"time"

	"millrace/stream/buf"
)

// Conn is one WebSocket connection. Its reader goroutine runs serve and alone reads; its writer goroutine alone writes
// messages.
type Conn struct {
	*socket
	reader
	Outbox *Outbox // what the writer writes from; SwitchOutbox changes it

	writer   writeLoop
	rejected error         // why the client is not let in; nil: it is
	gone     chan struct{} // nothing of the connection is left
}

// newConn makes a connection, whose messages are read into memory.
func newConn(s *shared, conn net.Conn, memory *buf.Pool, f Form) *Conn {
	k := &socket{shared: s, net: conn, form: f, started: time.Now(), closing: make(chan struct{})}
	c := &Conn{socket: k, Outbox: newOutbox(int64(s.opts.OutboxMessages), s.opts.OutboxBytes, &s.outboxBytes), gone: make(chan struct{})}
	c.reader = reader{socket: k, memory: memory, estimate: firstEstimate, tell: func(text []byte) { c.Push(Entry{Text: text}) }}
	c.writer.Writer.socket = k
	c.writer.outbox, c.writer.done, c.writer.cut = c.Outbox, make(chan struct{}), make(chan struct{})
	return c
}

// Push puts an entry into the outbox, and ends the connection when that is full. Where the outbox may be switched, it is for
// the reader.
func (c *Conn) Push(e Entry) {
	if !c.Outbox.Push(e) {
		c.End(Ending{Why: EndSlow})
	}
}

// SwitchOutbox has the writer go on with another outbox, once nothing waits in its own; before anything else it calls first.
// It waits for that, and reports false when the writer has ended. It is for the reader.
func (c *Conn) SwitchOutbox(to *Outbox, first func(*Writer)) bool {
	if !c.writer.goOn(c.Outbox, to, first) {
		return false
	}
	c.Outbox = to
	return true
}

// serve is the reader goroutine: the whole life of the connection.
func (c *Conn) serve(r *http.Request, buffered []byte) {
	defer c.close()
	watchPeer(c.net, c.silence())
	if err := c.upgrade(r, buffered); err != nil {
		c.End(Ending{Why: EndRefused})
		return
	}
	if f := c.opts.Hooks.Opened; f != nil {
		f()
	}
	started := c.writer.start()
	switch {
	case c.rejected != nil:
		c.End(rejection(c.rejected)) // the writer tells
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

// close ends the connection in order: no more frames, every frame its ending, every ending its reply, the client told, the
// connection closed. When nobody is there to read, replies are thrown away instead.
func (c *Conn) close() {
	if !c.Ended() { // a panic of the reader
		c.Fault()
	}
	<-c.closing
	c.protocol.Close(c.ending)
	c.linger()
	_ = c.net.Close()
	if f := c.opts.Hooks.Closed; f != nil && c.ws != nil {
		f(c.ending.Why, time.Since(c.started))
	}
	c.ends.add(string(c.ending.Why))
}

// Drain is for Protocol.Close: it calls closeStreams, which returns when every frame has had its ending, and then has the
// writer write what waits and tell the client why the connection ends. Where nobody is there to read, what waits is thrown
// away.
func (c *Conn) Drain(closeStreams func()) {
	if c.ending.Gone() {
		_ = c.net.Close()
		c.Outbox.Close()
	}
	closeStreams()
	c.writer.finish()
	c.Outbox.Close() // what came after a writer that failed
}

// takeOverTime is how long a connection may take over the message it is writing when another one takes its session.
const takeOverTime = time.Second

// Cut is for Protocol.Close: it ends the writer and leaves what waits in the outbox, for another connection. A client that is
// still there is told why.
func (c *Conn) Cut() {
	if c.ending.Gone() {
		_ = c.net.Close()
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(takeOverTime)) // for a message that nobody reads
	c.writer.stop()
	if !c.ending.Gone() {
		c.writer.sayEnding()
	}
}
