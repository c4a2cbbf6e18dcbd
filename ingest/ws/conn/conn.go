package conn

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// Conn is one WebSocket connection. Its reader goroutine runs serve and alone reads; its writer goroutine alone writes
// messages. Anybody may call End; the reader does what it takes.
type Conn struct {
	Outbox *Outbox // what the writer writes from; SwitchOutbox changes it

	registry *Registry
	net      net.Conn
	ws       *websocket.Conn // once upgraded
	form     Form
	protocol Protocol
	started  time.Time
	rejected error // why the client is not let in; nil: it is

	ended   atomic.Bool
	ending  Ending        // set before closing is closed
	closing chan struct{} // End was called
	gone    chan struct{} // nothing of the connection is left

	lastMessage atomic.Int64 // nanoseconds since started, for Options.Idle
	busy        atomic.Bool  // see Busy

	reader reader
	writer Writer
}

// New makes a connection, whose messages are read into memory.
func (r *Registry) New(conn net.Conn, memory *buf.Pool, f Form) *Conn {
	c := &Conn{
		Outbox:   newOutbox(int64(r.opts.OutboxMessages), r.opts.OutboxBytes, &r.outboxBytes),
		registry: r, net: conn, form: f, started: time.Now(), closing: make(chan struct{}), gone: make(chan struct{}),
		reader: reader{memory: memory, estimate: firstEstimate},
	}
	c.writer = Writer{conn: c, outbox: c.Outbox, done: make(chan struct{}), cut: make(chan struct{})}
	return c
}

// Start begins the life of the connection: it answers the handshake req, of which buffered is read already, and then has p
// take the messages. With rejected the client is only told that error. Start does not block.
func (c *Conn) Start(p Protocol, rejected error, req *http.Request, buffered []byte) {
	c.protocol, c.rejected = p, rejected
	if c.registry.enter(c) != nil {
		refuse(c.net, "503 Service Unavailable")
		return
	}
	if !c.registry.Run("reader", func() { c.serve(req, buffered) }, c.Fault) {
		c.registry.leave(c, EndRefused)
		refuse(c.net, "503 Service Unavailable")
	}
}

// Registry returns the registry that the connection is in.
func (c *Conn) Registry() *Registry { return c.registry }

// Closing is closed when the connection is to end.
func (c *Conn) Closing() <-chan struct{} { return c.closing }

// End says that the connection is to end, and why; the first one counts. It does not block and may be called with a
// stream's lock held.
func (c *Conn) End(e Ending) {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	c.ending = e
	close(c.closing)
	_ = c.net.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// Ended says whether End was called.
func (c *Conn) Ended() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Fault ends the connection after a panic of one of its goroutines: the frames that it had may be lost.
func (c *Conn) Fault() {
	c.End(Ending{EndFault, wire.CloseInternal, stream.Errorf(stream.Internal, "", "a fault of the server: its log has the details")})
}

// Busy says that the server works for the client without messages of it: the idle time-out (Options.Idle) does not hold.
func (c *Conn) Busy(yes bool) { c.busy.Store(yes) }

// serve is the reader goroutine: the whole life of the connection.
func (c *Conn) serve(r *http.Request, buffered []byte) {
	defer c.close()
	watchPeer(c.net, c.registry.opts.PingEvery+c.registry.opts.PongWait)
	if err := c.upgrade(r, buffered); err != nil {
		c.End(Ending{Why: EndRefused})
		return
	}
	if f := c.registry.opts.Hooks.Opened; f != nil {
		f()
	}
	started := c.startWriter()
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
	if f := c.registry.opts.Hooks.Closed; f != nil && c.ws != nil {
		f(c.ending.Why, time.Since(c.started))
	}
	c.registry.leave(c, c.ending.Why)
}

// Drain is for Protocol.Close: it calls closeStreams, which returns when every frame has had its ending, and then has the
// writer write what waits and tell the client why the connection ends. Where nobody is there to read, what waits is thrown
// away.
func (c *Conn) Drain(closeStreams func()) {
	w := &c.writer
	if c.ending.Gone() {
		_ = c.net.Close()
		w.outbox.Close()
	}
	closeStreams()
	if w.started {
		w.outbox.finish()
		<-w.done
	}
	w.outbox.Close() // what came after a writer that failed
}

// takeOverTime is how long a connection may take over the message it is writing when another one takes its session.
const takeOverTime = time.Second

// Cut is for Protocol.Close: it ends the writer and leaves what waits in the outbox, for another connection. A client that is
// still there is told why.
func (c *Conn) Cut() {
	w := &c.writer
	if c.ending.Gone() {
		_ = c.net.Close()
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(takeOverTime)) // for a message that nobody reads
	close(w.cut)
	if w.started {
		<-w.done
	}
	if !c.ending.Gone() {
		w.sayEnding()
	}
}

// Bounds of the time that a client which is still sending is given to read the last messages.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
)

// linger reads on for a while after the last message was written: closing with unread bytes would reset the connection, and
// the client would lose what was sent.
func (c *Conn) linger() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if c.ending.Gone() || !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.net.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.net, lingerBytes)
}
