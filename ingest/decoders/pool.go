package decoders

import (
	"context"
	"log/slog"
	"os/exec"
	"sync/atomic"

	"millrace/ingest"
	"millrace/internal/backoff"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Options are a Pool's settings. A zero field takes its default.
type Options struct {
	ingest.Limits                 // MaxDecoders at once, of MaxPixels at most
	Hardware      *video.Hardware // decodes where it can; nil = software
	Sandbox       bool            // confines ffmpeg, as for video.DecoderOptions
	Log           *slog.Logger
}

// Pool bounds the number of videos that are decoded at once. It is safe for concurrent
// use.
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
	return &Pool{opts: o, places: places{max: o.MaxDecoders}, group: routines.New(func(name string, value any, stack []byte) {
		o.Log.Error("a panic ended the decoding of a video", "goroutine", name, "panic", value, "stack", string(stack))
	})}
}

// Running returns how many videos have a place: those that have begun with a key frame.
func (p *Pool) Running() int { return p.places.used() }

// TooSlow returns how many ffmpegs were ended because they used limits.max_decode_time without a picture.
func (p *Pool) TooSlow() uint64 { return p.tooSlow.Load() }

// Goroutines returns how many goroutines run, by name.
func (p *Pool) Goroutines() map[string]int { return p.group.Counts() }

// Close refuses new videos and returns when every decoder has ended. The caller must
// have closed all of them.
func (p *Pool) Close() {
	p.group.Stop()
	p.group.Wait()
}

// Client is called with what cannot be passed to the stream. Calls must not block.
type Client struct {
	// Account is the client's, which is charged for its places (quotas.decoders) and the processor time of its
	// ffmpegs (quotas.decode); nil = it has no quotas.
	Account *stream.Account
	// Share is that of the client's messages, in which the memory of its ffmpeg counts, too (memory.client_share); nil = it has none.
	Share *buf.Share
	// KeyFrame requests a key frame; it is called at most once a second.
	KeyFrame func()
	// Refused is called with a frame that the stream did not accept because it has
	// closed.
	Refused func(f *stream.Frame, err error)
}

// Open returns the decoder of a video of the given codec, whose frames are submitted to
// st. It must be closed. It takes a place with its first key frame, which ends as Overloaded
// when others have taken all of them. Errors: Overloaded (they have now), Unavailable (there is
// no ffmpeg), InvalidArgument (the codec is of single pictures) and Draining (the pool is closed).
func (p *Pool) Open(codec stream.Codec, st *stream.Stream, memory *buf.Pool, client Client) (*Decoder, error) {
	if codec < stream.H264 || codec > stream.AV1 {
		return nil, stream.Errorf(stream.InvalidArgument, "codec", "%s is not an inter-coded video: want h264, vp8, vp9 or av1", codec)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		return nil, stream.Errorf(stream.Unavailable, "codec", "%s is decoded by ffmpeg, which is not installed on the server: install it there, or send jpeg", codec)
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
