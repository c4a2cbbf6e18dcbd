package ws

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/decoders"
	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	MaxMessage       int           // bytes of a message; 8 MiB (limits.max_message)
	MaxSessions      int           // with a connection or waiting for one; 10000 (limits.max_sessions)
	MaxPulls         int           // videos pulled at once, over all sessions; 64 (limits.max_pulls)
	MaxDecoders      int           // videos that clients send chunk by chunk, decoded at once; 16 (limits.max_decoders)
	MaxPixels        int           // of their pictures; 0 = as many as ffmpeg takes (limits.max_pixels)
	OutboxMessages   int           // replies that wait for one client; 4096 (limits.outbox_messages)
	OutboxBytes      int64         // and their bytes; 64 MiB (limits.outbox_bytes)
	KeptBytes        int64         // endings kept for sessions that may be resumed, of all together; 64 MiB (memory.budget / 16)
	PingEvery        time.Duration // 15s
	PongWait         time.Duration // a client that is silent for PingEvery + PongWait is gone; 10s
	WriteWait        time.Duration // of one message; 10s
	Idle             time.Duration // a session without a message for so long is closed; 0 = never (limits.idle)
	Resume           time.Duration // a millrace.v1 session without a connection lives on for so long; 30s
	AdviseEvery      time.Duration // advice to a stream is at least so far apart; 1s
	StatsEvery       time.Duration // statistics of a stream as well; 5s
	AllowPrivateURLs bool          // pull from loopback and private addresses (sources.allow_private)

	Log   *slog.Logger // slog.Default()
	Hooks Hooks
}

// Hooks tell of sessions as they come and go. Fields may be nil; calls are
// concurrent and must not block.
type Hooks struct {
	Opened func()
	Closed func(why End, lasted time.Duration)
	Panic  func(goroutine string)
}

func (o Options) withDefaults() Options {
	def(&o.MaxMessage, 8<<20)
	def(&o.MaxSessions, 10000)
	def(&o.MaxPulls, 64)
	def(&o.OutboxMessages, 4096)
	def(&o.OutboxBytes, 64<<20)
	def(&o.KeptBytes, 64<<20)
	def(&o.PingEvery, 15*time.Second)
	def(&o.PongWait, 10*time.Second)
	def(&o.WriteWait, 10*time.Second)
	def(&o.Resume, resumeTime)
	def(&o.AdviseEvery, time.Second)
	def(&o.StatsEvery, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

func def[T int | int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Adapter is the WebSocket adapter.
type Adapter struct {
	opts     Options
	http     *httpd.Server
	upgrader websocket.Upgrader
	group    *group
	serving  chan struct{}
	encoders sync.Pool

	backend atomic.Pointer[ingest.Backend] // set by Serve
	ctx     atomic.Pointer[context.Context]
	tickets tickets

	decoders *decoders.Pool

	outbox atomic.Int64 // bytes in all outboxes
	kept   store

	ends       counts // of sessions, by End
	streamEnds counts // of their streams, by stream.CloseReason

	pulls  atomic.Int64
	panics atomic.Uint64

	mu       sync.Mutex
	closing  bool      // no session is accepted any more
	until    time.Time // when closing: sessions have as long
	sessions map[*session]struct{}
	muxes    map[string]*mux // by token
	waiting  []*mux          // without a connection, in the order in which they lost it
	refusing int             // of sessions, those that are only told why not
}

var _ ingest.Interface = (*Adapter)(nil)

// New makes the adapter and registers its routes, which answer 503 until Serve
// is called.
func New(h *httpd.Server, o Options) *Adapter {
	a := &Adapter{
		opts: o.withDefaults(), http: h,
		sessions: map[*session]struct{}{}, muxes: map[string]*mux{}, serving: make(chan struct{}),
	}
	a.kept.most = a.opts.KeptBytes
	a.ends, a.streamEnds = newCounts(Ends), newCounts(wire.CloseReasons)
	a.decoders = decoders.NewPool(decoders.Options{Max: o.MaxDecoders, MaxPixels: o.MaxPixels, Log: a.opts.Log})
	a.encoders.New = func() any { return &encoder{} }
	a.upgrader = newUpgrader()
	a.group = newGroup(func(name string, value any, stack []byte) {
		a.panics.Add(1)
		a.opts.Log.Error("a panic ended a WebSocket session", "goroutine", name, "panic", value, "stack", string(stack))
		if f := a.opts.Hooks.Panic; f != nil {
			f(name)
		}
	})
	a.routes(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "ws" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// GoAway says that the server is going to end, and that sessions have until then
// for what is in flight: clients of millrace.v1 are told, and no session is
// accepted any more. Only the first call counts.
func (a *Adapter) GoAway(until time.Time) {
	a.mu.Lock()
	if a.closing {
		a.mu.Unlock()
		return
	}
	a.closing, a.until = true, until
	all := slices.Collect(maps.Values(a.muxes))
	a.mu.Unlock()
	for _, m := range all {
		m.goAway(until)
	}
}

// Serve implements ingest.Interface. When ctx ends, no session is accepted any
// more; in each one, frames that wait end with code draining, frames in flight
// are answered, and then the client is told and the connection closed. GoAway
// may have been called before, so that clients know.
func (a *Adapter) Serve(ctx context.Context, backend ingest.Backend) error {
	a.ctx.Store(&ctx)
	a.backend.Store(&backend)
	close(a.serving)
	<-ctx.Done()
	a.GoAway(time.Now())
	a.mu.Lock()
	open := make([]*session, 0, len(a.sessions))
	for s := range a.sessions {
		open = append(open, s)
	}
	a.mu.Unlock()
	for _, s := range open {
		s.end(draining())
	}
	a.empty()
	a.endDetached()
	a.group.stop()
	a.group.wait()
	a.decoders.Wait()
	return nil
}

// empty returns when no session is left. Only then the group stops: a session
// that ends may still have to start its writer.
func (a *Adapter) empty() {
	for {
		a.mu.Lock()
		var one *session
		for s := range a.sessions {
			one = s
			break
		}
		a.mu.Unlock()
		if one == nil {
			return
		}
		<-one.gone
	}
}

// Stats is a moment's reading.
type Stats struct {
	Sessions    int
	Resumable   int // millrace.v1 sessions, with a connection or without
	Waiting     int // those without
	Pulls       int
	Decoders    int
	OutboxBytes int64 // of replies that wait to be written
	KeptBytes   int64 // of those that were, for sessions that may be resumed
	Panics      uint64
	Ends        map[End]uint64                // sessions that ended, by why
	StreamEnds  map[stream.CloseReason]uint64 // and streams
	Goroutines  map[string]int
}

// Stats reads the counters. It is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	st := Stats{
		Pulls: int(a.pulls.Load()), Decoders: a.decoders.Running(), OutboxBytes: a.outbox.Load(), KeptBytes: a.kept.used.Load(), Panics: a.panics.Load(),
		Ends: read[End](a.ends), StreamEnds: read[stream.CloseReason](a.streamEnds),
		Goroutines: a.group.names(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	st.Sessions, st.Waiting = len(a.sessions), len(a.waiting)
	for token, m := range a.muxes {
		if token == m.token {
			st.Resumable++
		}
	}
	return st
}

// enter registers a session, if there is room for it.
func (a *Adapter) enter(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.room()
	if s.refused != nil && !a.closing {
		if err = nil; a.refusing == maxRefusing {
			err = s.refused
		}
	}
	if err != nil {
		return err
	}
	if s.refused != nil {
		a.refusing++
	}
	a.sessions[s] = struct{}{}
	return nil
}

// leave is a session's last act.
func (a *Adapter) leave(s *session, why End) {
	a.mu.Lock()
	delete(a.sessions, s)
	if s.refused != nil {
		a.refusing--
	}
	a.mu.Unlock()
	a.ends.add(string(why))
	close(s.gone)
}
