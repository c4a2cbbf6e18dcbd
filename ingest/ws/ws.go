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

// New returns the adapter and registers its routes, which answer 503 until Serve is
// called.
func New(h *httpd.Server, o Options) *Adapter {
	o = o.withDefaults()
	a := &Adapter{serving: make(chan struct{}), router: router{http: h, address: o.Address, protocols: newProtocols(o)}}
	a.register(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "ws" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// GoAway says that the server is going to shut down, and that sessions have until then
// for what is in flight: clients of millrace.v1 are told, and no further session is
// accepted. Only the first call has an effect.
func (a *Adapter) GoAway(until time.Time) {
	a.goneAway.Do(func() {
		a.conns.Close()
		a.sessions.GoAway(until)
	})
}

// Serve implements ingest.Interface. When ctx ends, no further session is accepted; in
// each one, frames that wait end with code draining, frames in flight are answered, and
// then the client is told and the connection closed. GoAway may be called before, so
// that clients are warned.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.gate.Store(gate)
	close(a.serving)
	<-ctx.Done()
	a.GoAway(time.Now())
	a.conns.Drain()
	a.sessions.EndWaiting()
	a.conns.Stop()
	a.decoders.Close()
	return nil
}

// Stats is a snapshot of the adapter.
type Stats struct {
	Conns         int // connections, those that are being rejected included
	Resumable     int // millrace.v1 sessions, with a connection or without
	Waiting       int // those without a connection
	Pulls         int
	Decoders      int
	TooSlow       map[string]uint64 // videos whose ffmpeg used limits.max_decode_time without a picture: "sent", "pulled"
	OutboxBytes   int64             // of replies that wait to be written
	KeptBytes     int64             // of written replies, kept for sessions that may be resumed
	Credits       int               // frames that the clients of millrace.v1 may send before they have to wait
	WithoutCredit int               // streams of millrace.v1 whose clients have to wait
	Panics        uint64
	Ends          map[conn.End]uint64           // sessions that ended, by reason
	StreamEnds    map[stream.CloseReason]uint64 // streams of sessions that ended, by reason
	Goroutines    map[string]int
}

// Stats reads the counters. It is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	c, s := a.conns.Stats(), a.sessions.Stats()
	return Stats{
		Conns: c.Conns, Resumable: s.Sessions, Waiting: s.Waiting, Pulls: a.pulls.Running(), Decoders: a.decoders.Running(),
		TooSlow:     map[string]uint64{"sent": a.decoders.TooSlow(), "pulled": a.pulls.TooSlow()},
		OutboxBytes: c.OutboxBytes, KeptBytes: s.ReplayBytes, Credits: s.Credits, WithoutCredit: s.WithoutCredit, Panics: c.Panics, Ends: c.Ends, StreamEnds: c.StreamEnds, Goroutines: c.Goroutines,
	}
}
