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

// Registry holds the connections of one adapter. Registry is safe for concurrent use.
type Registry struct {
	*shared

	mu        sync.Mutex
	closing   bool // no further connection is accepted
	conns     map[*Conn]struct{}
	rejecting int // connections in conns that only receive the error of their rejection
}

// NewRegistry returns a registry that offers the given subprotocols to connections.
func NewRegistry(o Options, subprotocols ...string) *Registry {
	return &Registry{shared: newShared(o, subprotocols), conns: map[*Conn]struct{}{}}
}

// New returns a connection; memory holds its messages.
func (r *Registry) New(conn net.Conn, memory *buf.Pool, f Form) *Conn {
	return newConn(r.shared, conn, memory, f)
}

// Start starts a connection: Start answers the handshake req (buffered holds bytes already read) and passes the
// messages to p. With rejected, the client only receives this error. Start does not block.
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

// Refused counts a connection refused before its upgrade for lack of room.
func (r *Registry) Refused() { r.ends.add(string(EndRefused)) }

// refuse ends a connection before its upgrade.
func refuse(conn net.Conn, status string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_ = conn.Close()
}

// Admit returns nil, or why there is no room for another connection of a client: Draining, Overloaded, or FlowControl
// after a flood.
func (r *Registry) Admit(of Client) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admit(of)
}

// admit is Admit with r.mu held.
func (r *Registry) admit(of Client) error {
	switch {
	case r.closing:
		return ingest.ErrDraining
	case len(r.conns)-r.rejecting >= r.opts.MaxSessions:
		return stream.Errorf(stream.Overloaded, "limits.max_sessions",
			"%d sessions are open already: try later, or raise the setting", r.opts.MaxSessions)
	}
	return r.floods.check(of, time.Now())
}

// maxRejecting is the most connections being rejected with an error at a time.
const maxRejecting = 64

// enter registers a connection, or returns an error without room.
func (r *Registry) enter(c *Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.admit(c.client)
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

// leave removes an ended connection.
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

// Count returns the number of connections, except connections being rejected.
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

// Drain ends every connection and returns after the last end. Call Drain after Close.
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

// Stop refuses new goroutines and waits for running goroutines. Call Stop after Drain, because an ending connection
// may still have to start its writer.
func (r *Registry) Stop() {
	r.group.Stop()
	r.group.Wait()
}

// Stats is a snapshot of the registry.
type Stats struct {
	Conns       int   // including connections being rejected
	OutboxBytes int64 // of queued replies
	Panics      uint64
	Ends        map[End]uint64                // ended connections, by reason
	StreamEnds  map[stream.CloseReason]uint64 // streams of ended connections, by reason
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
