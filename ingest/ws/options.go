package ws

import (
	"log/slog"
	"time"

	"millrace/ingest/ws/conn"
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
	Hooks conn.Hooks
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
	def(&o.Resume, 30*time.Second)
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
