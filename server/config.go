package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"millrace/ingest/streams"
	"millrace/internal/codec"
	"millrace/stream"
)

// Config is everything that can be set. A zero field takes its default, see
// Defaults. Settings lists the keys of the file with their flags and variables.
type Config struct {
	HTTP    string   // address of REST and WebSocket; "off" = none
	GRPC    string   // address of gRPC; "off" = none
	Metrics string   // own address for the metrics; "" = at /metrics of HTTP, "off" = none
	Hosts   []string // names, beside its own, that requests may call the server by
	Origins []string // web origins, beside its own, whose pages may use it
	Memory  MemoryConfig
	Limits  LimitsConfig
	Log     LogConfig
	Drain   Duration // how long the end may take
	Sources SourcesConfig
	ONNX    ONNXConfig
	TLS     TLSConfig
	Models  []ModelConfig
	Streams []streams.Config // cameras that the server watches itself

	StreamsFile string // keeps the streams that requests add, over restarts; "" = they are gone with the server

	// No keys of the file:
	Version string // of the program
	Clip    []byte // an MP4 that the console offers; nil = none
}

// MemoryConfig bounds the memory that frames and results travel in, and that of
// batches, which take half of it at most.
type MemoryConfig struct {
	Budget Size // bytes
}

// LimitsConfig bounds what clients may send.
type LimitsConfig struct {
	MaxBody        Size // bytes of an HTTP request's body
	MaxMessage     Size // bytes of a WebSocket or gRPC message
	MaxPixels      int  // width times height of a picture
	MaxConnections int  // TCP connections at once, of all protocols; more are closed
	MaxSessions    int  // WebSocket sessions at once
	MaxPulls       int  // videos pulled at once for WebSocket sessions
	MaxDecoders    int  // videos that clients send chunk by chunk, decoded at once
	MaxStreams     int  // streams of the server's own at once
	MaxWatchers    int  // of their results and pictures, at once; and of health over gRPC

	OutboxMessages int      // replies that wait for one WebSocket client; past it, it is a slow consumer
	OutboxBytes    Size     // and their bytes
	Resume         Duration // a millrace.v1 session lives on for so long without its connection
	Idle           Duration // a WebSocket session without a message for so long is closed
}

// LogConfig says what is logged, and where.
type LogConfig struct {
	Level  string // debug, info, warn or error
	Format string // text or json
	File   string // appended to; "" = standard error
}

// SourcesConfig is about videos that clients ask the server to pull.
type SourcesConfig struct {
	AllowPrivate bool // from loopback and private addresses too
}

// ONNXConfig is about the library that ONNX models run on.
type ONNXConfig struct {
	Library string // path of ONNX Runtime's shared library; "" = found, see docs/onnx.md
}

// Off as an address keeps a protocol away.
const Off = "off"

// Defaults returns the configuration of a server that was told nothing.
func Defaults() Config {
	return Config{
		HTTP: "127.0.0.1:8000", GRPC: "127.0.0.1:8001",
		Memory: MemoryConfig{Budget: 1 << 30},
		Limits: LimitsConfig{MaxBody: 64 << 20, MaxMessage: 8 << 20, MaxPixels: codec.DefaultMaxPixels, MaxConnections: 16384, MaxSessions: 10000,
			MaxPulls: 64, MaxDecoders: 16, MaxStreams: 64, MaxWatchers: 256, OutboxMessages: 4096, OutboxBytes: 64 << 20, Idle: Duration(24 * time.Hour), Resume: Duration(30 * time.Second)},
		Log:   LogConfig{Level: "info", Format: "text"},
		Drain: Duration(10 * time.Second),
	}
}

func (c Config) withDefaults() Config {
	d := Defaults()
	c.HTTP, c.GRPC = cmp.Or(c.HTTP, d.HTTP), cmp.Or(c.GRPC, d.GRPC)
	c.Memory.Budget = cmp.Or(c.Memory.Budget, d.Memory.Budget)
	c.Limits.MaxBody = cmp.Or(c.Limits.MaxBody, d.Limits.MaxBody)
	c.Limits.MaxMessage = cmp.Or(c.Limits.MaxMessage, d.Limits.MaxMessage)
	c.Limits.MaxPixels = cmp.Or(c.Limits.MaxPixels, d.Limits.MaxPixels)
	c.Limits.MaxConnections = cmp.Or(c.Limits.MaxConnections, d.Limits.MaxConnections)
	c.Limits.MaxSessions = cmp.Or(c.Limits.MaxSessions, d.Limits.MaxSessions)
	c.Limits.MaxPulls = cmp.Or(c.Limits.MaxPulls, d.Limits.MaxPulls)
	c.Limits.MaxDecoders = cmp.Or(c.Limits.MaxDecoders, d.Limits.MaxDecoders)
	c.Limits.MaxStreams = cmp.Or(c.Limits.MaxStreams, d.Limits.MaxStreams)
	c.Limits.MaxWatchers = cmp.Or(c.Limits.MaxWatchers, d.Limits.MaxWatchers)
	c.Limits.OutboxMessages = cmp.Or(c.Limits.OutboxMessages, d.Limits.OutboxMessages)
	c.Limits.OutboxBytes = cmp.Or(c.Limits.OutboxBytes, d.Limits.OutboxBytes)
	c.Limits.Idle = cmp.Or(c.Limits.Idle, d.Limits.Idle)
	c.Limits.Resume = cmp.Or(c.Limits.Resume, d.Limits.Resume)
	c.Log.Level, c.Log.Format = cmp.Or(c.Log.Level, d.Log.Level), cmp.Or(c.Log.Format, d.Log.Format)
	c.Drain = cmp.Or(c.Drain, d.Drain)
	return c
}

// Validate says everything that is wrong, each error with the path of the
// setting ("models[1].batching.max_size"). Errors are *stream.Error, joined.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, path, format, args...))
	}
	for _, l := range c.Listeners() {
		if err := checkAddr(l.Addr); err != nil {
			bad(l.Name, "%w", err)
		}
	}
	if c.Memory.Budget < 1<<20 {
		bad("memory.budget", "%v is less than 1MiB", c.Memory.Budget)
	}
	for _, s := range []struct {
		path string
		size Size
	}{{"limits.max_body", c.Limits.MaxBody}, {"limits.max_message", c.Limits.MaxMessage}, {"limits.outbox_bytes", c.Limits.OutboxBytes}} {
		if s.size < 1<<10 || s.size > 1<<30 {
			bad(s.path, "%v is not between 1KiB and 1GiB", s.size)
		}
	}
	if n := c.Limits.MaxPixels; n < 1 || n > 1<<30 {
		bad("limits.max_pixels", "%d is not between 1 and %d", n, 1<<30)
	}
	for _, l := range []struct {
		path string
		n    int
	}{{"limits.max_connections", c.Limits.MaxConnections}, {"limits.max_sessions", c.Limits.MaxSessions}, {"limits.max_pulls", c.Limits.MaxPulls}, {"limits.max_decoders", c.Limits.MaxDecoders},
		{"limits.max_streams", c.Limits.MaxStreams}, {"limits.max_watchers", c.Limits.MaxWatchers}, {"limits.outbox_messages", c.Limits.OutboxMessages}} {
		if l.n < 1 || l.n > 1<<20 {
			bad(l.path, "%d is not between 1 and %d", l.n, 1<<20)
		}
	}
	if c.Limits.Idle < 0 {
		bad("limits.idle", "%v is negative", c.Limits.Idle)
	}
	if c.Limits.Resume < 0 || time.Duration(c.Limits.Resume) > time.Hour {
		bad("limits.resume", "%v is not between 1ms and 1h", c.Limits.Resume)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad("log.level", "%q is no level: want debug, info, warn or error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format", "%q is no format: want text or json", c.Log.Format)
	}
	if c.Drain < 0 || time.Duration(c.Drain) > time.Hour {
		bad("drain", "%v is not between 0s and 1h", c.Drain)
	}
	if err := c.TLS.validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(slices.Concat(errs, c.validateModels(), c.validateStreams())...)
}

func (c Config) validateModels() (errs []error) {
	first := map[string]int{}
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		if err := m.validate(at); err != nil {
			errs = append(errs, err)
		}
		if j, twice := first[m.Name]; twice {
			errs = append(errs, stream.Errorf(stream.InvalidArgument, at+".name", "%q is the name of models[%d] already", m.Name, j))
		} else {
			first[m.Name] = i
		}
	}
	return errs
}

func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not an address: want HOST:PORT, such as 127.0.0.1:8000, or off", addr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q has no port between 0 and 65535", addr)
	}
	return nil
}
