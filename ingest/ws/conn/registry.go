package conn

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
)

// Registry has the connections of one adapter. It is safe for concurrent use.
type Registry struct {
	*shared

	mu        sync.Mutex
	closing   bool // no further connection is accepted
	conns     map[*Conn]struct{}
	rejecting int // those of conns that are only sent the error for which they are rejected
}

// NewRegistry returns a registry whose connections are offered the given subprotocols.
func NewRegistry(o Options, subprotocols ...string) *Registry {
	return &Registry{shared: newShared(o, subprotocols), conns: map[*Conn]struct{}{}}
}

// New returns a connection, whose messages are read into memory.
func (r *Registry) New(conn net.Conn, memory *buf.Pool, f Form) *Conn {
	return newConn(r.shared, conn, memory, f)
}

// Start starts a connection: it answers the handshake req, of which buffered has been
// read already, and then passes the messages to p. With rejected the client is only
// sent that error. Start does not block.
func (r *Registry) Start(c *Conn, p Protocol, of Client, rejected error, req *http.Request, buffered []byte) {
	c.protocol, c.client, c.rejected = p, of, rejected
	used := r.floods.used(of)
	c.pings.Allowed, c.texts = used.pings, used.texts
	entered := r.enter(c) == nil
	if entered && r.Run("reader", func() { defer r.leave(c); c.serve(req, buffered) }, c.Fault) {
		return
	}
	r.Refused()
	if entered {
		r.leave(c)
	}
	refuse(c.net, "503 Service Unavailable")
}

// Refused counts a connection for which there is no place, and which is not upgraded.
func (r *Registry) Refused() { r.ends.add(string(EndRefused)) }

// refuse ends a connection that is not upgraded yet.
func refuse(conn net.Conn, status string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_ = conn.Close()
}

// Room returns the error when there is no place for another connection of a client: Draining,
// Overloaded, or FlowControl after a flood.
func (r *Registry) Room(of Client) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room(of)
}

// room is Room with r.mu held.
func (r *Registry) room(of Client) error {
	switch {
	case r.closing:
		return ingest.ErrDraining
	case len(r.conns)-r.rejecting >= r.opts.MaxSessions:
		return stream.Errorf(stream.Overloaded, "limits.max_sessions", "%d sessions are open already: try later, or raise the setting", r.opts.MaxSessions)
	}
	return r.floods.check(of, time.Now())
}

// maxRejecting is the most connections that are being sent the error for which they are
// rejected.
const maxRejecting = 64

// enter registers a connection, if there is a place for it.
func (r *Registry) enter(c *Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.room(c.client)
	if c.rejected != nil && !r.closing {
		if err = nil; r.rejecting == maxRejecting {
			err = c.rejected
		}
	}
	if err == nil && c.rejected == nil {
		err = c.client.Account.Core().Hold(stream.QuotaSessions)
	}
	if err != nil {
		return err
	}
	if c.rejected != nil {
		r.rejecting++
	}
	r.conns[c] = struct{}{}
	return nil
}

// leave removes a connection that has ended.
func (r *Registry) leave(c *Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	if c.rejected != nil {
		r.rejecting--
	} else {
		c.client.Account.Core().Release(stream.QuotaSessions)
	}
	r.mu.Unlock()
	close(c.gone)
}

// Count returns the number of connections, without those that are being rejected.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) - r.rejecting
}

// Close makes the registry accept no further connection.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

// Drain ends every connection and returns when the last one has ended. It is called
// after Close.
func (r *Registry) Drain() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.conns))
	r.mu.Unlock()
	for _, c := range all {
		c.End(Draining())
	}
	for _, c := range all {
		<-c.gone
	}
}

// Stop refuses new goroutines and waits for those that run. It is called after Drain,
// because a connection that ends may still have to start its writer.
func (r *Registry) Stop() {
	r.group.Stop()
	r.group.Wait()
}

// Stats is a snapshot of the registry.
type Stats struct {
	Conns       int   // including those that are being rejected
	OutboxBytes int64 // of replies that wait to be written
	Panics      uint64
	Ends        map[End]uint64                // connections that ended, by reason
	StreamEnds  map[stream.CloseReason]uint64 // streams of connections that ended, by reason
	Goroutines  map[string]int                // by name
}

// Stats returns a snapshot of the counters.
func (r *Registry) Stats() Stats {
	st := Stats{
		OutboxBytes: r.outboxBytes.Load(), Panics: r.panics.Load(),
		Ends: read[End](r.ends), StreamEnds: read[stream.CloseReason](r.streamEnds), Goroutines: r.group.Counts(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Conns = len(r.conns)
	return st
}
