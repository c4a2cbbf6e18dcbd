package ingest

import (
	"time"

	"millrace/internal/codec"
)

// Limits bound the input of clients, for all adapters. Zero fields mean the defaults.
type Limits struct {
	MaxBody        int `yaml:"max_body" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" help:"largest body of an HTTP request"`
	MaxMessage     int `yaml:"max_message" default:"8MiB" min:"1KiB" max:"1GiB" unit:"bytes" advanced:"yes" help:"largest WebSocket or gRPC message"`
	MaxPixels      int `yaml:"max_pixels" default:"67108864" min:"1" max:"1073741824" advanced:"yes" help:"largest width times height of a picture or video"`
	MaxDecoded     int `yaml:"max_decoded_pixels" unset:"a quarter of limits.max_pixels" example:"16777216" min:"1" max:"1073741824" advanced:"yes" help:"most pixels decoded of a picture: a JPEG is decoded at 1/1, 1/2, 1/4 or 1/8, as the model's input size allows"`
	MaxPerByte     int `yaml:"max_pixels_per_byte" default:"1100" min:"1" max:"1073741824" advanced:"yes" help:"most pixels per byte of a picture or video key frame; pictures of up to 8388608 pixels are exempt"`
	MaxConnections int `yaml:"max_connections" default:"16384" min:"1" max:"1048576" advanced:"yes" help:"most TCP connections at once; further connections are closed at once, or replace the oldest connection without a complete request"`
	MaxPerAddress  int `yaml:"max_connections_per_address" default:"1024" min:"1" max:"1048576" advanced:"yes" help:"most TCP connections at once of one address (IPv6: a /64; a /48 may have four times as many)"`
	MaxCalls       int `yaml:"max_calls" default:"1024" min:"1" max:"1048576" advanced:"yes" help:"most gRPC calls at once on one connection; further calls wait in the client"`
	MaxSessions    int `yaml:"max_sessions" default:"10000" min:"1" max:"1048576" advanced:"yes" help:"most WebSocket sessions at once"`
	MaxPulls       int `yaml:"max_pulls" default:"64" min:"1" max:"1048576" advanced:"yes" help:"most videos pulled at once for WebSocket sessions"`
	MaxDecoders    int `yaml:"max_decoders" default:"16" min:"1" max:"1048576" advanced:"yes" help:"most videos of millrace.v1 clients decoded at once, each by one ffmpeg process"`
	MaxEncoders    int `yaml:"max_encoders" default:"8" min:"1" max:"1048576" advanced:"yes" help:"most videos of server streams encoded at once for watchers over WebSocket, each by one ffmpeg process"`
	MaxStreams     int `yaml:"max_streams" default:"64" min:"1" max:"1048576" advanced:"yes" help:"most server streams at once"`
	MaxWatchers    int `yaml:"max_watchers" default:"256" min:"1" max:"1048576" advanced:"yes" help:"most watchers of server streams at once, and most gRPC health watchers of one address"`

	MaxRegions int `yaml:"max_regions" default:"256" min:"1" max:"65536" advanced:"yes" help:"most shared memory regions of clients at once"`

	MaxDecodeTime  time.Duration `yaml:"max_decode_time" default:"5s" min:"1ms" max:"10m" advanced:"yes" help:"longest time to decode a picture, and most processor time of ffmpeg for a client's video without a picture"`
	OutboxMessages int           `yaml:"outbox_messages" default:"4096" min:"1" max:"1048576" advanced:"yes" help:"most waiting replies for one WebSocket client; with more, the client is disconnected as too slow"`
	OutboxBytes    int64         `yaml:"outbox_bytes" default:"64MiB" min:"1KiB" max:"1GiB" unit:"bytes" advanced:"yes" help:"most bytes of waiting replies for one WebSocket client"`
	KeepAlive      time.Duration `yaml:"keep_alive" default:"2m" min:"1ms" max:"24h" advanced:"yes" help:"close an HTTP or gRPC connection after this idle time"`
	Idle           time.Duration `yaml:"idle" default:"24h" advanced:"yes" help:"close a WebSocket session after this time without a message"`
	Resume         time.Duration `yaml:"resume" default:"30s" min:"1ms" max:"1h" advanced:"yes" help:"how long a client of millrace.v1 may resume a session after the connection broke"`
}

// Pictures returns the limits of pictures. MaxDecoded that is not set is a quarter of MaxPixels.
func (l Limits) Pictures() codec.Limits {
	decoded := l.MaxDecoded
	if decoded == 0 && l.MaxPixels > 0 {
		decoded = max(1, l.MaxPixels/4)
	}
	return codec.Limits{MaxPixels: l.MaxPixels, MaxDecoded: decoded, MaxPerByte: l.MaxPerByte,
		MaxTime: l.MaxDecodeTime}
}
