package conn

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws/encode"
	"millrace/internal/wire"
	"millrace/stream"
)

// Options are the settings of all connections. Every field but Idle, Log and Hooks must be above 0.
type Options struct {
	MaxMessage     int           // bytes of a message
	MaxConns       int           // at once
	OutboxMessages int           // that wait for one client
	OutboxBytes    int64         // of them
	PingEvery      time.Duration // between pings
	PongWait       time.Duration // a client that is silent for PingEvery + PongWait is gone
	WriteWait      time.Duration // of one message
	Idle           time.Duration // a connection without a message for so long is closed; 0 = never

	Log   *slog.Logger
	Hooks Hooks
}

// Hooks tell of connections as they come and go. Fields may be nil; calls are concurrent and must not block.
type Hooks struct {
	Opened func()
	Closed func(why End, lasted time.Duration)
	Panic  func(goroutine string)
}

// Registry has the connections of one adapter. It is safe for concurrent use.
type Registry struct {
	opts     Options
	upgrader websocket.Upgrader
	group    *group
	encoders sync.Pool

	outboxBytes atomic.Int64 // in all outboxes
	ends        counts       // of connections, by End
	streamEnds  counts       // of their streams, by stream.CloseReason
	panics      atomic.Uint64

	mu        sync.Mutex
	closing   bool // no connection is accepted any more
	conns     map[*Conn]struct{}
	rejecting int // of conns, those that are only told why they are rejected
}

// NewRegistry makes a registry of connections that are offered the given subprotocols.
func NewRegistry(o Options, subprotocols ...string) *Registry {
	r := &Registry{
		opts: o, upgrader: newUpgrader(subprotocols), conns: map[*Conn]struct{}{},
		ends: newCounts(Ends), streamEnds: newCounts(wire.CloseReasons),
	}
	r.encoders.New = func() any { return &encode.Encoder{} }
	r.group = newGroup(func(name string, value any, stack []byte) {
		r.panics.Add(1)
		o.Log.Error("a panic ended a WebSocket session", "goroutine", name, "panic", value, "stack", string(stack))
		if f := o.Hooks.Panic; f != nil {
			f(name)
		}
	})
	return r
}

// Run starts f as a goroutine called name, unless the registry has ended. failed, when not nil, is called after a panic of f.
func (r *Registry) Run(name string, f func(), failed func()) bool {
	return r.group.run(name, f, failed)
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
		return stream.Errorf(stream.Draining, "", "the server is shutting down")
	case len(r.conns)-r.rejecting >= r.opts.MaxConns:
		return stream.Errorf(stream.Overloaded, "limits.max_sessions", "%d sessions are open already: try later, or raise the setting", r.opts.MaxConns)
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
func (r *Registry) leave(c *Conn, why End) {
	r.mu.Lock()
	delete(r.conns, c)
	if c.rejected != nil {
		r.rejecting--
	}
	r.mu.Unlock()
	r.ends.add(string(why))
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
	r.group.stop()
	r.group.wait()
}

// StreamEnded counts the end of a stream.
func (r *Registry) StreamEnded(why stream.CloseReason) { r.streamEnds.add(string(why)) }

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
		Ends: read[End](r.ends), StreamEnds: read[stream.CloseReason](r.streamEnds), Goroutines: r.group.names(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Conns = len(r.conns)
	return st
}

// counts counts by a word. All words are there from the start.
type counts map[string]*atomic.Uint64

func newCounts[T ~string](words []T) counts {
	c := counts{}
	for _, w := range words {
		c[string(w)] = new(atomic.Uint64)
	}
	return c
}

func (c counts) add(word string) {
	if n := c[word]; n != nil {
		n.Add(1)
	}
}

// read returns the counts by words of type T.
func read[T ~string](c counts) map[T]uint64 {
	out := make(map[T]uint64, len(c))
	for w, n := range c {
		out[T(w)] = n.Load()
	}
	return out
}
