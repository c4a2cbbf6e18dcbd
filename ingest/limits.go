package ingest

import "time"

// Limits bound what clients may send, for all adapters. Zero fields take their
// defaults.
type Limits struct {
	MaxBody        int `yaml:"max_body" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"largest body of an HTTP request"`
	MaxMessage     int `yaml:"max_message" default:"8MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"largest WebSocket or gRPC message"`
	MaxPixels      int `yaml:"max_pixels" default:"67108864" min:"1" max:"1073741824" help:"largest width times height of a picture"`
	MaxConnections int `yaml:"max_connections" default:"16384" min:"1" max:"1048576" help:"most TCP connections at once, of all protocols together; further ones are closed immediately"`
	MaxSessions    int `yaml:"max_sessions" default:"10000" min:"1" max:"1048576" help:"most WebSocket sessions at once"`
	MaxPulls       int `yaml:"max_pulls" default:"64" min:"1" max:"1048576" help:"most videos pulled at once for WebSocket sessions"`
	MaxDecoders    int `yaml:"max_decoders" default:"16" min:"1" max:"1048576" help:"most videos of millrace.v1 clients (H.264, VP8, VP9, AV1) decoded at once, one ffmpeg each"`
	MaxStreams     int `yaml:"max_streams" default:"64" min:"1" max:"1048576" help:"most server streams at once"`
	MaxWatchers    int `yaml:"max_watchers" default:"256" min:"1" max:"1048576" help:"most clients that watch the results or pictures of server streams at once, and most that watch health over gRPC"`

	OutboxMessages int           `yaml:"outbox_messages" default:"4096" min:"1" max:"1048576" help:"most replies that wait for one WebSocket client; with more it is closed as slow"`
	OutboxBytes    int64         `yaml:"outbox_bytes" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"most bytes of replies that wait for one WebSocket client"`
	Idle           time.Duration `yaml:"idle" default:"24h" help:"time without a message after which a WebSocket session is closed"`
	Resume         time.Duration `yaml:"resume" default:"30s" min:"1ms" max:"1h" help:"time for which a millrace.v1 session without its connection can be resumed"`
}
