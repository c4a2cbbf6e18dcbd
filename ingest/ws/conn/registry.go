package conn

import (
	"net"
	"net/http"
	"sync"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
)

// Registry has the connections of one adapter. It is safe for concurrent use.
type Registry struct {
	*shared

	mu        sync.Mutex
	closing   bool // no connection is accepted any more
	conns     map[*Conn]struct{}
	rejecting int // of conns, those that are only told why they are rejected
}

// NewRegistry makes a registry of connections that are offered the given subprotocols.
func NewRegistry(o Options, subprotocols ...string) *Registry {
	return &Registry{shared: newShared(o, subprotocols), conns: map[*Conn]struct{}{}}
}

// New makes a connection, whose messages are read into memory.
func (r *Registry) New(conn net.Conn, memory *buf.Pool, f Form) *Conn {
	return newConn(r.shared, conn, memory, f)
}

// Start begins the life of a connection: it answers the handshake req, of which buffered is read already, and then has p take
// the messages. With rejected the client is only told that error. Start does not block.
func (r *Registry) Start(c *Conn, p Protocol, rejected error, req *http.Request, buffered []byte) {
	c.protocol, c.rejected = p, rejected
	if r.enter(c) != nil {
		refuse(c.net, "503 Service Unavailable")
		return
	}
	if !r.Run("reader", func() { defer r.leave(c); c.serve(req, buffered) }, c.Fault) {
		r.ends.add(string(EndRefused))
		r.leave(c)
		refuse(c.net, "503 Service Unavailable")
	}
}

// Room says why there is no place for another connection: Draining, or Overloaded.
func (r *Registry) Room() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room()
}

// room is Room with r.mu held.
func (r *Registry) room() error {
	switch {
	case r.closing:
		return ingest.ErrDraining
	case len(r.conns)-r.rejecting >= r.opts.MaxSessions:
		return stream.Errorf(stream.Overloaded, "limits.max_sessions", "%d sessions are open already: try later, or raise the setting", r.opts.MaxSessions)
	}
	return nil
}

// maxRejecting bounds the connections that are being told why they are rejected.
const maxRejecting = 64

// enter registers a connection, if there is room for it.
func (r *Registry) enter(c *Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.room()
	if c.rejected != nil && !r.closing {
		if err = nil; r.rejecting == maxRejecting {
			err = c.rejected
		}
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

// leave takes a connection that has ended off the list.
func (r *Registry) leave(c *Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	if c.rejected != nil {
		r.rejecting--
	}
	r.mu.Unlock()
	close(c.gone)
}

// Count returns how many connections there are, without those that are being rejected.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) - r.rejecting
}

// Close has no connection accepted any more.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

// Drain ends every connection and returns when the last one is gone.
func (r *Registry) Drain() {
	r.mu.Lock()
	all := make([]*Conn, 0, len(r.conns))
	for c := range r.conns {
		all = append(all, c)
	}
	r.mu.Unlock()
	for _, c := range all {
		c.End(Draining())
	}
	for {
		r.mu.Lock()
		var one *Conn
		for c := range r.conns {
			one = c
			break
		}
		r.mu.Unlock()
		if one == nil {
			return
		}
		<-one.gone
	}
}

// Stop refuses new goroutines and waits for those that run. It is called after Drain: a connection that ends may still have
// to start its writer.
func (r *Registry) Stop() {
	r.group.Stop()
	r.group.Wait()
}

// Stats is a moment's reading.
type Stats struct {
	Conns       int   // those that are being rejected included
	OutboxBytes int64 // of replies that wait to be written
	Panics      uint64
	Ends        map[End]uint64                // connections that ended, by why
	StreamEnds  map[stream.CloseReason]uint64 // and streams
	Goroutines  map[string]int                // by name
}

// Stats reads the counters.
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
