package ws

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/accept"
	"millrace/internal/setting"
	"millrace/internal/video"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	ingest.Limits // of clients; MaxPixels also of the pictures of decoded videos

	KeptBytes        int64         // bytes of endings kept for all sessions that may be resumed; default 64 MiB (memory.budget / 16)
	PingEvery        time.Duration // default 15s
	PongWait         time.Duration // a client that is silent for PingEvery + PongWait is disconnected; default 10s
	WriteWait        time.Duration // of one message; default 10s
	AdviseEvery      time.Duration // least time between two advices to a stream; default 1s
	StatsEvery       time.Duration // least time between two statistics of a stream; default 5s
	AllowPrivateURLs bool          // pull from private addresses and those of this machine (sources.allow_private)

	// Address returns the address of a request's client, where a proxy is trusted the one that it names; default: that of its connection.
	Address func(*fiber.Ctx) netip.Addr

	Hardware *video.Hardware // decodes videos where it can (sources.hwaccel); nil = software
	Sandbox  bool            // confines ffmpeg (sandbox)

	Log   *slog.Logger // default slog.Default()
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
	if o.Address == nil {
		o.Address = func(c *fiber.Ctx) netip.Addr { return new(accept.Limit).Client(c.Context().RemoteAddr()) }
	}
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
