package streams

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/video"
	"millrace/internal/wire"
	"millrace/stream"
)

const (
	// videoRoom and videoBytes bound the messages that wait for one watcher of encoded video.
	videoRoom  = 256
	videoBytes = 8 << 20
	// videoGrace is how long the encoder runs without a watcher: a page that is loaded again finds the encoder.
	videoGrace = 5 * time.Second
	// steadyTime is how long an encoder runs before its failure counts as the first.
	steadyTime = 10 * time.Second
)

// encodedVideo is the H.264 of a preview in fragments of MP4, encoded once for all watchers. The renderer writes the
// pictures.
//
// A watcher gets text and binary messages; text begins with "{", which no box of MP4 does. A text with mime begins the
// video: the next messages are the header of the MP4, and fragments from a key frame on. A slow watcher loses the
// waiting fragments, and begins again with the next key frame and the number of lost fragments.
type encodedVideo struct {
	stream  string
	take    func() error // takes a place among the encoders of the server
	free    func()       // frees the place
	options video.EncoderOptions
	ctx     context.Context // ends the encoder
	memory  codec.Memory    // for ffmpeg
	counts  *videoCounts
	log     *slog.Logger
	wake    func() // of the renderer; after the grace time

	mu       sync.Mutex
	closed   bool
	held     bool      // has a place
	until    time.Time // without watchers: the end of the grace time
	watchers map[*watcher]struct{}
	header   *video.MP4Header
	width    int
	height   int
	group    [][]byte // fragments from the newest key frame on
	bytes    int      // of group
	before   int      // fragments of the group before

	// The renderer owns the following fields.
	encoder *video.Encoder
	charged int64
	since   time.Time
	retry   time.Time // no encoder is started before
	pauses  backoff.Backoff
}

// videoCounts count over all encoders of a stream.
type videoCounts struct {
	encoders  atomic.Int64  // that run
	failures  atomic.Uint64 // of encoders
	fragments atomic.Uint64 // encoded pictures
	lost      atomic.Uint64 // fragments that slow watchers did not get
}

// watch adds a watcher, who gets the pictures since the last key frame at once.
func (v *encodedVideo) watch() (*watcher, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, errStreamEnded
	}
	if !v.held {
		if err := v.take(); err != nil {
			return nil, err
		}
		v.held = true
	}
	if v.watchers == nil {
		v.watchers = map[*watcher]struct{}{}
	}
	w := &watcher{lines: make(chan []byte, videoRoom), waits: true}
	if len(v.group) > 0 && len(v.group)+2 <= videoRoom {
		v.begin(w)
		for _, f := range v.group {
			w.put(f)
		}
	}
	v.watchers[w] = struct{}{}
	return w, nil
}

// leave removes a watcher.
func (v *encodedVideo) leave(w *watcher) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.watchers, w)
	if len(v.watchers) == 0 {
		v.until = time.Now().Add(videoGrace)
		time.AfterFunc(videoGrace, v.wake)
	}
}

func (v *encodedVideo) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.watchers)
}

// close removes all watchers.
func (v *encodedVideo) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	for w := range v.watchers {
		close(w.lines)
	}
	v.watchers = nil
	v.release()
}

// wanted reports whether the video has watchers, or had watchers a short time ago. Otherwise the place is freed.
func (v *encodedVideo) wanted(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.watchers) > 0 || !v.closed && v.held && now.Before(v.until) {
		return true
	}
	v.release()
	return false
}

// release frees the place. v.mu is held.
func (v *encodedVideo) release() {
	if v.held {
		v.held, v.header, v.group, v.bytes = false, nil, nil, 0
		v.free()
	}
}

// write encodes a picture and sends the fragment. Only the renderer calls write.
func (v *encodedVideo) write(rgb []byte, w, h int, at stream.Instant) {
	o := &v.options
	if v.encoder != nil && (o.Width != w || o.Height != h) {
		v.end()
	}
	if v.encoder == nil {
		now := time.Now()
		if now.Before(v.retry) {
			return
		}
		o.Width, o.Height = w, h
		if err := v.start(now); err != nil {
			v.failed(err)
			return
		}
	}
	f, err := v.encoder.Encode(rgb, time.Duration(at))
	if err != nil {
		v.failed(err)
		return
	}
	v.counts.fragments.Add(1)
	v.send(f)
}

func (v *encodedVideo) start(now time.Time) (err error) {
	n := video.Memory(v.options.Width * v.options.Height)
	if err := v.memory.Charge(n); err != nil {
		return err
	}
	if v.encoder, err = video.NewEncoder(v.ctx, v.options); err != nil {
		v.memory.Refund(n)
		return err
	}
	v.charged, v.since = n, now
	v.counts.encoders.Add(1)
	v.log.Info("a watched video is encoded", "stream", v.stream, "encoder", v.encoder.Name, "width", v.options.Width,
		"height", v.options.Height)
	return nil
}

// end ends the encoder, if any. Only the renderer calls end.
func (v *encodedVideo) end() {
	if v.encoder == nil {
		return
	}
	v.encoder.Close()
	v.encoder = nil
	v.memory.Refund(v.charged)
	v.counts.encoders.Add(-1)
}

// failed ends the encoder after a failure, and tells the watchers.
func (v *encodedVideo) failed(err error) {
	now := time.Now()
	if v.encoder != nil && now.Sub(v.since) > steadyTime {
		v.pauses.Reset()
	}
	v.end()
	if v.ctx.Err() != nil {
		return
	}
	v.counts.failures.Add(1)
	pause := v.pauses.Next(rand.Float64())
	v.retry = now.Add(pause)
	v.log.Warn("the encoder of a watched video has failed, and starts again", "stream", v.stream, "error", err,
		"pause", pause)
	line := oip.AppendString([]byte(`{"stream":`), v.stream)
	line = append(wire.AppendPlainError(append(line, ','), stream.Errorf(stream.CodeOf(err), "",
		"the encoder of the video has failed, and starts again: %w", err)), '}')
	v.mu.Lock()
	defer v.mu.Unlock()
	v.header, v.group, v.bytes = nil, nil, 0
	for w := range v.watchers {
		v.restart(w)
		w.put(line)
	}
}

// send sends a fragment.
func (v *encodedVideo) send(f video.Fragment) {
	data := bytes.Clone(f.Data)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.header != f.Header { // of a new encoder
		v.header, v.width, v.height = f.Header, v.options.Width, v.options.Height
		for w := range v.watchers {
			v.restart(w)
		}
	}
	if f.Key {
		v.before, v.group, v.bytes = len(v.group), nil, 0
	}
	if v.bytes += len(data); (f.Key || v.group != nil) && v.bytes <= videoBytes {
		v.group = append(v.group, data)
	} else {
		v.group = nil // until the next key frame, new watchers wait
	}
	for w := range v.watchers {
		// A watcher behind by more than a group would stay behind.
		behind := f.Key && len(w.lines) > v.before+2
		full := len(w.lines)+3 > videoRoom || int(w.bytes.Load())+len(data) > videoBytes
		if !w.waits && (behind || full) {
			v.restart(w)
		}
		switch {
		case !w.waits:
			w.put(data)
		case f.Key:
			v.begin(w)
			w.put(data)
		case w.began:
			v.miss(w, 1)
		}
	}
}

// begin begins the video of a watcher. v.mu is held.
func (v *encodedVideo) begin(w *watcher) {
	line := oip.AppendString([]byte(`{"stream":`), v.stream)
	line = oip.AppendString(append(line, `,"mime":`...), v.header.MIME())
	line = fmt.Appendf(line, `,"width":%d,"height":%d`, v.width, v.height)
	if w.missed > 0 {
		line = fmt.Appendf(line, `,"lost":%d`, w.missed)
	}
	w.put(append(line, '}'))
	w.put(v.header.Bytes)
	w.waits, w.began, w.missed = false, true, 0
}

// restart takes back the waiting messages of a watcher, who then waits for a key frame. v.mu is held.
func (v *encodedVideo) restart(w *watcher) {
	w.waits = true
	for {
		select {
		case line := <-w.lines:
			w.bytes.Add(-int64(len(line)))
			if isFragment(line) {
				v.miss(w, 1)
			}
		default:
			return
		}
	}
}

func (v *encodedVideo) miss(w *watcher, n uint64) {
	w.missed += n
	v.counts.lost.Add(n)
}

// put adds a message. Only one goroutine at a time calls put, and there is room.
func (w *watcher) put(line []byte) {
	w.bytes.Add(int64(len(line)))
	w.lines <- line
}

func isText(line []byte) bool { return line[0] == '{' }

func isFragment(line []byte) bool { return !isText(line) && string(line[4:8]) == "moof" }
