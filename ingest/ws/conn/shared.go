package conn

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/internal/processors"
	"millrace/internal/routines"
	"millrace/internal/wire"
	"millrace/stream"
)

// Options are the settings of all connections. Every field but Idle, Log and Hooks must be above 0.
type Options struct {
	ingest.Limits

	PingEvery time.Duration // between pings
	PongWait  time.Duration // a client silent for PingEvery + PongWait is disconnected
	WriteWait time.Duration // per message

	Turns *processors.Turns // of long messages

	Log   *slog.Logger
	Hooks Hooks
}

// Hooks are called when connections open and close. Fields may be nil; calls are
// concurrent and must not block.
type Hooks struct {
	Opened func()
	Closed func(why End, lasted time.Duration)
	Panic  func(goroutine string)
}

// shared is the common state of all connections of a registry. shared is safe for concurrent use.
type shared struct {
	opts         Options
	upgrader     *websocket.Upgrader
	group        *routines.Group
	writeBuffers sync.Pool

	floods floods

	outboxBytes atomic.Int64 // in all outboxes
	ends        counts       // of connections, by End
	streamEnds  counts       // of their streams, by stream.CloseReason
	panics      atomic.Uint64
}

func newShared(o Options, subprotocols []string) *shared {
	s := &shared{opts: o, upgrader: httpd.NewUpgrader(headerBuffer, subprotocols...), ends: newCounts(Ends),
		streamEnds: newCounts(wire.CloseReasons)}
	s.writeBuffers.New = func() any { return &writeBuffers{} }
	s.group = routines.New(func(name string, value any, stack []byte) {
		s.panics.Add(1)
		o.Log.Error("a panic ended a WebSocket session", "goroutine", name, "panic", value, "stack", string(stack))
		if f := o.Hooks.Panic; f != nil {
			f(name)
		}
	})
	return s
}

// Run starts f as a goroutine called name, unless the registry has been stopped.
// failed, when not nil, is called after a panic of f.
func (s *shared) Run(name string, f func(), failed func()) bool { return s.group.Go(name, f, failed) }

// StreamEnded counts the end of a stream.
func (s *shared) StreamEnded(why stream.CloseReason) { s.streamEnds.add(string(why)) }
