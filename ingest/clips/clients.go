package clips

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/codec"
	"millrace/internal/ctxio"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Clients makes the clips of the video that clients send. Clients is safe for concurrent use; nil makes no clips.
type Clients struct {
	set     ClientSettings
	store   *Store
	limits  codec.Limits
	log     *slog.Logger
	all     total
	writers *routines.Group
	panics  atomic.Uint64

	mu   sync.Mutex
	open map[*ClientStream]struct{}
}

// NewClients returns the clips of client streams in a store; nil when the settings allow none. Close releases the
// store.
func NewClients(s ClientSettings, store *Store, limits codec.Limits, log *slog.Logger) *Clients {
	if store == nil || !s.Enabled() {
		return nil
	}
	c := &Clients{set: *setting.Filled(&s), store: store.Retain(), limits: limits, log: log,
		open: map[*ClientStream]struct{}{}}
	c.all.most = c.set.Memory
	c.writers = routines.New(func(name string, value any, stack []byte) {
		c.panics.Add(1)
		log.Error("a panic ended the writing of a clip", "goroutine", name, "panic", value, "stack", string(stack))
	})
	return c
}

// checkEvery is how often Run looks for streams without video.
const checkEvery = 5 * time.Second

// Run ends the clips of streams whose clients send no video, until ctx ends.
func (c *Clients) Run(ctx context.Context) {
	for c != nil && ctxio.Sleep(ctx, checkEvery) {
		c.endSilent(stream.Now())
	}
}

// endSilent ends the clips of streams without video for maxGap, after which the video would not go on in the clip.
func (c *Clients) endSilent(now stream.Instant) {
	c.mu.Lock()
	list := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, s := range list {
		if heard := stream.Instant(s.heard.Load()); heard != 0 && now.Sub(heard) > maxGap {
			s.recorder.Lost(CutSilent)
		}
	}
}

// Close waits until all clips are written. All streams have been closed.
func (c *Clients) Close() {
	if c != nil {
		c.writers.Stop()
		c.writers.Wait()
		c.store.Close()
	}
}

// Open returns the clips of a stream with a name for a model, to which rules apply. Close the stream after use.
func (c *Clients) Open(name, model string, memory *buf.Pool) *ClientStream {
	if c == nil {
		return nil
	}
	s := &ClientStream{of: c, model: model, pictures: Pictures{Limits: c.limits, Memory: memory},
		recorder: NewRecorder(Env{Store: c.store, Stream: name, Memory: memory, Log: c.log, all: &c.all,
			Start: func(write func()) bool { return c.writers.Go("clip", write, nil) }, Ready: func(*Clip) {}})}
	s.recorder.Set(c.set.settings(), []string{model})
	c.mu.Lock()
	c.open[s] = struct{}{}
	c.mu.Unlock()
	return s
}

// ClientStream makes the clips of one video of a client. All methods but Chunk may be called concurrently, and return
// at once. A nil ClientStream makes no clips.
type ClientStream struct {
	of       *Clients
	model    string
	recorder *Recorder
	pictures Pictures
	heard    atomic.Int64 // time of the newest chunk; 0 = none yet

	muxer *video.Muxer // for Chunk
	lost  bool         // chunks up to the next key frame are left out; for Chunk
}

// Chunk takes a chunk that a decoder gets. After chunks that no decoder gets, the first chunk is a key frame. f is the
// chunk's frame, without payload, received at now.
func (s *ClientStream) Chunk(f *stream.Frame, info video.Chunk, sets, data []byte, now stream.Instant) {
	if s == nil || s.lost && !info.Key {
		return
	}
	if s.muxer == nil {
		s.muxer = video.NewMuxer(f.Codec.String())
	}
	s.heard.Store(int64(now))
	p, err := s.muxer.Fragment(info, sets, data, timeOf(f.CaptureUS, now))
	if s.lost = err != nil; s.lost {
		s.of.log.Debug("a chunk of a client cannot be part of a clip", "stream", s.recorder.env.Stream, "error", err)
		return
	}
	s.recorder.Packet(sources.Fragment{Fragment: p})
}

// timeOf returns the time of a frame on the clock of the events.
func timeOf(captureUS int64, received stream.Instant) time.Duration {
	if captureUS == 0 {
		return time.Duration(received.Wall().UnixNano())
	}
	return time.Duration(captureUS) * time.Microsecond
}

// Frame takes a decoded frame before the model gets the frame.
func (s *ClientStream) Frame(f *stream.Frame) {
	if s != nil {
		s.pictures.Add(*f, 1)
	}
}

// Refused tells that the model does not get a frame.
func (s *ClientStream) Refused(seq uint64) {
	if s != nil {
		s.pictures.Drop(seq)
	}
}

// Result takes a result of the stream.
func (s *ClientStream) Result(r *stream.Result) {
	if s == nil || r.Partial {
		return
	}
	defer s.pictures.Drop(r.Seq)
	if r.Outcome != stream.Answered {
		return
	}
	var list []Incident
	for v, text := range EventsOf(r) {
		list = append(list, IncidentOf(v, text))
	}
	if len(list) > 0 {
		s.recorder.Events(s.model, list, s.pictures.Picture(r))
	}
	s.recorder.Result(s.model, timeOf(r.CaptureUS, r.Timing.Received), ObjectLine(r))
}

// Close ends the present clip.
func (s *ClientStream) Close() {
	if s == nil {
		return
	}
	s.recorder.Close()
	s.pictures.Clear()
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.open, s)
}
