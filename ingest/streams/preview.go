package streams

import (
	"sync"
	"time"

	"millrace/ingest/frames"
	"millrace/internal/codec"
	"millrace/stream"
)

const (
	previewFrames = 8               // maximum number of frames waiting for a result
	previewAge    = 2 * time.Second // older results of other models are not drawn
)

// preview draws results over their frames while there are watchers. A preview keeps the newest frames by seq and
// draws only the newest result, in a separate goroutine, so that drawing does not delay results.
type preview struct {
	fanout
	video  encodedVideo
	start  func(render func()) bool // starts a goroutine
	limits codec.Limits             // of coded pictures
	memory codec.Memory             // counts the memory for decoding
	// changed is called, without a lock, after the first watcher arrives and after the last watcher leaves. The
	// method active returns the new state.
	changed func()

	state     sync.Mutex
	several   bool // draw the results of several models
	rendering bool
	frames    []stream.Frame            // each frame holds its lease
	frame     stream.Frame              // the next frame to draw, with its result
	result    *stream.Result            // nil = none
	index     uint64                    // index of the model of result
	newest    map[uint64]*stream.Result // of each of several models
	wake      chan struct{}             // of the renderer

	// The renderer owns the following fields: whether the next picture is for watchers of JPEG, and of encoded video.
	pictures, encodes bool
}

// watchPictures adds a watcher of JPEG pictures.
func (m *preview) watchPictures() (w *watcher, ok bool) {
	w, err := m.enter(func() (*watcher, error) { return found(m.fanout.watch(1, true, "")) }, m.fanout.removeWatcher)
	return w, err == nil
}

// watchVideo adds a watcher of encoded video.
func (m *preview) watchVideo() (*watcher, error) { return m.enter(m.video.watch, m.video.leave) }

// active reports whether pictures are drawn, so that whole frames are needed.
func (m *preview) active() bool {
	m.state.Lock()
	defer m.state.Unlock()
	return m.rendering
}

// enter adds a watcher, and starts the renderer for the first watcher.
func (m *preview) enter(watch func() (*watcher, error), remove func(*watcher)) (*watcher, error) {
	w, started, err := m.enterLocked(watch, remove)
	if started {
		m.changed()
	}
	return w, err
}

func (m *preview) enterLocked(watch func() (*watcher, error), remove func(*watcher)) (*watcher, bool, error) {
	m.state.Lock()
	defer m.state.Unlock()
	w, err := watch()
	if err != nil || m.rendering {
		return w, false, err
	}
	m.wake = make(chan struct{}, 1)
	if m.rendering = m.start(m.render); !m.rendering {
		remove(w)
		return nil, false, errStreamEnded
	}
	return w, true, nil
}

// leave removes a watcher of JPEG pictures.
func (m *preview) leave(w *watcher) {
	m.fanout.removeWatcher(w)
	m.wakeRenderer()
}

// leaveVideo removes a watcher of encoded video.
func (m *preview) leaveVideo(w *watcher) {
	m.video.leave(w)
	m.wakeRenderer()
}

// watching returns the number of watchers.
func (m *preview) watching() int { return m.fanout.size() + m.video.size() }

func (m *preview) wakeRenderer() {
	m.state.Lock()
	defer m.state.Unlock()
	if m.rendering {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// close removes all watchers.
func (m *preview) close() {
	m.fanout.close()
	m.video.close()
	m.wakeRenderer()
}

// add keeps a frame until its result arrives.
func (m *preview) add(f stream.Frame) {
	m.state.Lock()
	defer m.state.Unlock()
	if !m.rendering {
		return
	}
	f.Lease.Retain()
	if len(m.frames) == previewFrames {
		m.dropOldest()
	}
	m.frames = append(m.frames, f)
}

func (m *preview) dropOldest() {
	m.frames[0].Lease.Release()
	n := copy(m.frames, m.frames[1:])
	m.frames[n] = stream.Frame{}
	m.frames = m.frames[:n]
}

// show takes over a result of a model. If the frame of the result is kept, the preview draws the result together with
// the newest results of other models; otherwise show releases the result.
func (m *preview) show(r *stream.Result, model uint64) {
	m.state.Lock()
	defer m.state.Unlock()
	if m.several && m.rendering && !r.Partial && r.Outcome == stream.Answered {
		m.keep(model, r.Shared())
	}
	for len(m.frames) > 0 && m.frames[0].Seq < r.Seq {
		m.dropOldest()
	}
	if !m.rendering || r.Partial || r.Outcome != stream.Answered || len(m.frames) == 0 || m.frames[0].Seq != r.Seq {
		r.Release()
		return
	}
	m.drop()
	m.frame, m.result, m.index = m.frames[0], r, model
	m.frame.Lease.Retain()
	m.dropOldest()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keep keeps the newest result of a model, nil for none.
func (m *preview) keep(model uint64, r *stream.Result) {
	if old := m.newest[model]; old != nil {
		old.Release()
	}
	delete(m.newest, model)
	if r == nil {
		return
	}
	if m.newest == nil {
		m.newest = map[uint64]*stream.Result{}
	}
	m.newest[model] = r
}

// otherModelResults returns the newest results of the other models, without results much older than the result to
// draw, and without results for another picture size, from before the source was opened again.
func (m *preview) otherModelResults() (out []*stream.Result) {
	if m.result == nil {
		return nil
	}
	for model, r := range m.newest {
		if model != m.index && m.result.Timing.Received.Sub(r.Timing.Received) < previewAge && sameSize(r, m.result) {
			out = append(out, r.Shared())
		}
	}
	return out
}

// sameSize reports whether two results use the same picture size, as far as known: some kinds of models do not report
// the size.
func sameSize(a, b *stream.Result) bool {
	return a.Width == b.Width && a.Height == b.Height || a.Width == 0 || b.Width == 0
}

// setSeveral turns drawing the results of several models on or off. Results of the removed models are no longer
// drawn.
func (m *preview) setSeveral(several bool, removed ...uint64) {
	m.state.Lock()
	defer m.state.Unlock()
	m.several = several
	for _, model := range removed {
		m.keep(model, nil)
	}
	if !several {
		for model := range m.newest {
			m.keep(model, nil)
		}
	}
}

// drop releases the frame and result to draw next.
func (m *preview) drop() {
	if m.result != nil {
		m.result.Release()
		m.frame.Lease.Release()
		m.result, m.frame = nil, stream.Frame{}
	}
}

// next returns the next frame and result to draw. Without watchers, more is false and nothing is kept.
func (m *preview) next() (f stream.Frame, r *stream.Result, others []*stream.Result, more bool) {
	m.state.Lock()
	defer m.state.Unlock()
	m.pictures, m.encodes = m.fanout.size() > 0, m.video.wanted(time.Now())
	if !m.pictures && !m.encodes {
		m.end()
		return f, nil, nil, false
	}
	f, r, others = m.frame, m.result, m.otherModelResults()
	m.frame, m.result = stream.Frame{}, nil
	return f, r, others, true
}

func (m *preview) end() {
	m.rendering = false
	m.drop()
	for model := range m.newest {
		m.keep(model, nil)
	}
	for len(m.frames) > 0 {
		m.dropOldest()
	}
}

// render is the renderer's goroutine.
func (m *preview) render() {
	watched := true
	defer func() {
		m.video.end()
		if watched { // a panic
			m.state.Lock()
			m.end()
			m.state.Unlock()
		}
		m.changed()
	}()
	canvas := frames.Canvas{Decoder: codec.Decoder{Limits: m.limits, Memory: m.memory}}
	for {
		f, r, others, more := m.next()
		if !m.encodes {
			m.video.end()
		}
		if !more {
			watched = false
			return
		}
		if r == nil {
			<-m.wake
			continue
		}
		rgb, err := canvas.Pixels(&f, append(others, r)...)
		if err == nil && m.pictures {
			var jpeg []byte
			if jpeg, err = codec.EncodeJPEG(nil, rgb, f.Width, f.Height, frames.DrawnQuality); err == nil {
				m.fanout.send(jpeg, "")
			}
		}
		if err == nil && m.encodes {
			m.video.write(rgb, f.Width, f.Height, f.Arrived)
		}
		f.Lease.Release()
		for _, r := range append(others, r) {
			r.Release()
		}
	}
}
