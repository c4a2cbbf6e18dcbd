package ws

import (
	"log/slog"
	"time"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/setting"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	ingest.Limits // of clients; MaxPixels also of the pictures of decoded videos

	KeptBytes        int64         // endings kept for sessions that may be resumed, of all together; 64 MiB (memory.budget / 16)
	PingEvery        time.Duration // 15s
	PongWait         time.Duration // a client that is silent for PingEvery + PongWait is gone; 10s
	WriteWait        time.Duration // of one message; 10s
	AdviseEvery      time.Duration // advice to a stream is at least so far apart; 1s
	StatsEvery       time.Duration // statistics of a stream as well; 5s
	AllowPrivateURLs bool          // pull from loopback and private addresses (sources.allow_private)

	Log   *slog.Logger // slog.Default()
	Hooks conn.Hooks
}

func (o Options) withDefaults() Options {
	setting.Fill(&o.Limits)
	def(&o.KeptBytes, 64<<20)
	def(&o.PingEvery, 15*time.Second)
	def(&o.PongWait, 10*time.Second)
	def(&o.WriteWait, 10*time.Second)
	def(&o.AdviseEvery, time.Second)
	def(&o.StatsEvery, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

func def[T int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}
