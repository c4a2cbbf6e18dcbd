package decoders

import (
	"context"
	"log/slog"
	"os/exec"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/internal/backoff"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Options are a Pool's settings. Zero fields take their defaults.
type Options struct {
	ingest.Limits                 // MaxDecoders at once, of MaxPixels at most
	Hardware      *video.Hardware // hardware decoding where supported; nil = software
	Sandbox       bool            // confines ffmpeg, as for video.DecoderOptions
	Log           *slog.Logger
}

// Pool limits the number of videos decoded at the same time. Pool is safe for concurrent use.
type Pool struct {
	opts   Options
	places places
	group  *routines.Group

	tooSlow atomic.Uint64
}

// NewPool returns a pool.
func NewPool(o Options) *Pool {
	setting.Fill(&o.Limits)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Pool{opts: o, places: places{max: o.MaxDecoders},
		group: routines.New(func(name string, value any, stack []byte) {
			o.Log.Error("a panic ended the decoding of a video", "goroutine", name, "panic", value, "stack",
				string(stack))
		})}
}

// Running returns the number of videos with a place. A video takes a place with its first key frame.
func (p *Pool) Running() int { return p.places.used() }

// TooSlow returns the number of ffmpegs ended for using limits.max_decode_time without returning a picture.
func (p *Pool) TooSlow() uint64 { return p.tooSlow.Load() }

// Goroutines returns how many goroutines run, by name.
func (p *Pool) Goroutines() map[string]int { return p.group.Counts() }

// Close refuses new videos and waits for the end of every decoder. The caller must have closed all decoders.
func (p *Pool) Close() {
	p.group.Stop()
	p.group.Wait()
}

// Client has the callbacks for events that do not go to the stream. Calls must not block.
type Client struct {
	// Account is charged for the client's places (quotas.decoders) and for the processor time of the client's ffmpegs
	// (quotas.decode); nil = no quotas.
	Account *stream.Account
	// Share is the share of the client's messages. The memory of the client's ffmpeg also counts in Share
	// (memory.client_share); nil = no share.
	Share *buf.ClientShare
	// KeyFrame requests a key frame, at most once a second.
	KeyFrame func()
	// Refused is called with a frame refused by a closed stream.
	Refused func(f *stream.Frame, err error)
	// Clips gets the chunks to be decoded, and the frames; nil = none.
	Clips *clips.ClientStream
}

// Open returns the decoder of a video of the given codec. The decoder submits the frames to st. Close the decoder
// after use. The first key frame takes a place, and ends as Overloaded when no place is free. Errors: Overloaded (no
// place is free now), Unavailable (no ffmpeg), InvalidArgument (codec of single pictures) and Draining (the pool is
// closed).
func (p *Pool) Open(codec stream.Codec, st *stream.Stream, memory *buf.Pool, client Client) (*Decoder, error) {
	if codec < stream.H264 || codec > stream.AV1 {
		return nil, stream.Errorf(stream.InvalidArgument, "codec",
			"%s is not an inter-coded video: want h264, vp8, vp9 or av1", codec)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		return nil, stream.Errorf(stream.Unavailable, "codec",
			"%s is decoded by ffmpeg, which is not installed on the server: install it there, or send jpeg", codec)
	}
	if err := p.places.free(client.Account); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Decoder{
		pool: p, codec: codec, name: codec.String(), st: st, memory: memory, client: client,
		ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), done: make(chan struct{}), skipping: true,
		backoff: backoff.Backoff{Min: minBackoff, Max: maxBackoff},
	}
	if !p.group.Go("decoder", d.run, nil) {
		cancel()
		return nil, stream.Errorf(stream.Draining, "", "the server is shutting down and opens no further video")
	}
	return d, nil
}
