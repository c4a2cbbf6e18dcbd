package ws

import (
	"context"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/httpd"
	"millrace/stream"
)

// Adapter is the WebSocket adapter.
type Adapter struct {
	router
	serving  chan struct{}
	goneAway sync.Once
}

var _ ingest.Interface = (*Adapter)(nil)

// New returns the adapter and registers the adapter's routes; the routes answer 503 until Serve is called.
func New(h *httpd.Server, o Options) *Adapter {
	o = o.withDefaults()
	a := &Adapter{serving: make(chan struct{}), router: router{http: h, address: o.Address,
		protocols: newProtocols(o, h.Turns())}}
	a.register(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "ws" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// GoAway announces the server's shutdown: sessions have until the given time for frames in flight. Clients of
// millrace.v1 are told, and further sessions are refused. Only the first call has an effect.
func (a *Adapter) GoAway(until time.Time) {
	a.goneAway.Do(func() {
		a.conns.Close()
		a.sessions.GoAway(until)
	})
}

// Serve implements ingest.Interface. When ctx ends, new sessions are refused. In each session, waiting frames end
// with code draining, frames in flight are answered, then the client is told and the connection closed. An earlier
// GoAway warns the clients.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.gate.Store(gate)
	close(a.serving)
	var silent sync.WaitGroup
	silent.Go(func() { a.clips.Run(ctx) })
	<-ctx.Done()
	silent.Wait()
	a.GoAway(time.Now())
	a.conns.Drain()
	a.sessions.EndWaiting()
	a.conns.Stop()
	a.decoders.Close()
	a.clips.Close()
	return nil
}

// Stats is a snapshot of the adapter.
type Stats struct {
	Conns     int // connections, including connections being rejected
	Resumable int // millrace.v1 sessions, with a connection or without
	Waiting   int // sessions without a connection
	Pulls     int
	Decoders  int
	// videos whose ffmpeg used limits.max_decode_time without a picture: "sent", "pulled"
	TooSlow       map[string]uint64
	OutboxBytes   int64 // of queued replies
	KeptBytes     int64 // of written replies, kept for resumable sessions
	Credits       int   // frames that clients of millrace.v1 may send without waiting
	WithoutCredit int   // streams of millrace.v1 without credit
	Panics        uint64
	Ends          map[conn.End]uint64           // ended sessions, by reason
	StreamEnds    map[stream.CloseReason]uint64 // streams of ended sessions, by reason
	Goroutines    map[string]int
}

// Stats returns the counters. Stats is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	c, s := a.conns.Stats(), a.sessions.Stats()
	return Stats{
		Conns: c.Conns, Resumable: s.Sessions, Waiting: s.Waiting, Pulls: a.pulls.Running(),
		Decoders:    a.decoders.Running(),
		TooSlow:     map[string]uint64{"sent": a.decoders.TooSlow(), "pulled": a.pulls.TooSlow()},
		OutboxBytes: c.OutboxBytes, KeptBytes: s.ReplayBytes, Credits: s.Credits, WithoutCredit: s.WithoutCredit,
		Panics: c.Panics, Ends: c.Ends, StreamEnds: c.StreamEnds, Goroutines: c.Goroutines,
	}
}
