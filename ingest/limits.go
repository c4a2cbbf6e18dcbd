package ingest

import (
	"time"

	"millrace/internal/codec"
)

// Limits bound what clients may send, for all adapters. Zero fields take their
// defaults.
type Limits struct {
	MaxBody        int `yaml:"max_body" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"largest body of an HTTP request"`
	MaxMessage     int `yaml:"max_message" default:"8MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"largest WebSocket or gRPC message"`
	MaxPixels      int `yaml:"max_pixels" default:"67108864" min:"1" max:"1073741824" help:"largest width times height of a picture, or of a video"`
	MaxDecoded     int `yaml:"max_decoded_pixels" default:"16777216" min:"1" max:"1073741824" help:"most pixels that are decoded of a picture: all of a PNG or WebP, and of a JPEG those at the scale (1, 1/2, 1/4, 1/8) that the model's size needs"`
	MaxPerByte     int `yaml:"max_pixels_per_byte" default:"1100" min:"1" max:"1073741824" help:"most pixels for each byte of a picture, or of a key frame of millrace.v1 video; those of up to 8388608 pixels may have any number"`
	MaxConnections int `yaml:"max_connections" default:"16384" min:"1" max:"1048576" help:"most TCP connections at once, of all protocols together; further ones are closed immediately, or the oldest without a complete request for them. The addresses of management have a sixteenth as many of their own"`
	MaxPerAddress  int `yaml:"max_connections_per_address" default:"1024" min:"1" max:"1048576" help:"most TCP connections at once from one address (IPv6: from one /64, and four times as many from one /48) that is not in trusted_proxies"`
	MaxCalls       int `yaml:"max_calls" default:"1024" min:"1" max:"1048576" help:"most gRPC calls at once on one connection; further ones wait in the client"`
	MaxSessions    int `yaml:"max_sessions" default:"10000" min:"1" max:"1048576" help:"most WebSocket sessions at once"`
	MaxPulls       int `yaml:"max_pulls" default:"64" min:"1" max:"1048576" help:"most videos pulled at once for WebSocket sessions; see quotas.pulls"`
	MaxDecoders    int `yaml:"max_decoders" default:"16" min:"1" max:"1048576" help:"most videos of millrace.v1 clients (H.264, VP8, VP9, AV1) decoded at once, one ffmpeg each; see quotas.decoders"`
	MaxStreams     int `yaml:"max_streams" default:"64" min:"1" max:"1048576" help:"most server streams at once"`
	MaxWatchers    int `yaml:"max_watchers" default:"256" min:"1" max:"1048576" help:"most clients that watch the results or pictures of server streams at once, see quotas.watchers, and most calls of one address that watch health over gRPC, of all addresses 16 times as many"`

	MaxRegions int `yaml:"max_regions" default:"256" min:"1" max:"65536" help:"most regions of shared memory that clients have registered at once"`

	MaxDecodeTime  time.Duration `yaml:"max_decode_time" default:"5s" min:"1ms" max:"10m" help:"longest time for decoding a picture, and most processor time that the ffmpeg of a client's video uses without one"`
	OutboxMessages int           `yaml:"outbox_messages" default:"4096" min:"1" max:"1048576" help:"most replies that wait for one WebSocket client; with more it is closed as slow"`
	OutboxBytes    int64         `yaml:"outbox_bytes" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"most bytes of replies that wait for one WebSocket client"`
	KeepAlive      time.Duration `yaml:"keep_alive" default:"2m" min:"1ms" max:"24h" help:"time without a request after which a connection of HTTP is closed, and without a call after which one of gRPC is"`
	Idle           time.Duration `yaml:"idle" default:"24h" help:"time without a message after which a WebSocket session is closed"`
	Resume         time.Duration `yaml:"resume" default:"30s" min:"1ms" max:"1h" help:"time for which a millrace.v1 session without its connection can be resumed"`
}

// Pictures returns the limits of pictures.
func (l Limits) Pictures() codec.Limits {
	return codec.Limits{MaxPixels: l.MaxPixels, MaxDecoded: l.MaxDecoded, MaxPerByte: l.MaxPerByte, MaxTime: l.MaxDecodeTime}
}
