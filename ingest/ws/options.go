package ws

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/ws/conn"
	"millrace/internal/accept"
	"millrace/internal/setting"
	"millrace/internal/video"
)

// Options are the adapter's settings. A zero field means the default.
type Options struct {
	ingest.Limits // of clients; MaxPixels also of the pictures of decoded videos

	// bytes of endings kept for all resumable sessions; default 64 MiB (memory.budget / 16)
	KeptBytes        int64
	PingEvery        time.Duration // default 15s
	PongWait         time.Duration // a client silent for PingEvery + PongWait is disconnected; default 10s
	WriteWait        time.Duration // per message; default 10s
	AdviseEvery      time.Duration // least time between two advices to a stream; default 1s
	StatsEvery       time.Duration // least time between two statistics of a stream; default 5s
	AllowPrivateURLs bool          // allow pulls from private addresses and from this machine (sources.allow_private)

	// Address returns the address of a request's client (from a trusted proxy, the address named by the proxy);
	// default: the address of the connection.
	Address func(*fiber.Ctx) netip.Addr

	Hardware *video.Hardware // hardware decoding of videos where possible (sources.hwaccel); nil = software
	Sandbox  bool            // confines ffmpeg (sandbox)

	Clips *clips.Clients // of the video of millrace.v1 streams with rules; nil = none

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
