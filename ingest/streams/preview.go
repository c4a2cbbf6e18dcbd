package streams

import (
	"cmp"
	"image"
	"slices"
	"sync"
	"time"

	"millrace/internal/codec"
	"millrace/internal/overlay"
	"millrace/stream"
)

const (
	previewFrames  = 8 // maximum number of frames waiting for a result
	previewQuality = 80
	previewAge     = 2 * time.Second // older results of other models are not drawn
)

// preview draws results over their frames while there are watchers. A preview keeps the newest frames by seq and
// draws only the newest result, in a separate goroutine, so that drawing does not delay results.
type preview struct {
	fanout
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
}

// watchPictures adds a watcher.
func (m *preview) watchPictures() (w *watcher, ok bool) {
	before := m.active()
	if w, ok = m.enter(); !before {
		m.changed()
	}
	return w, ok
}

// active reports whether pictures are drawn, so that whole frames are needed.
func (m *preview) active() bool {
	m.state.Lock()
	defer m.state.Unlock()
	return m.rendering
}

func (m *preview) enter() (*watcher, bool) {
	m.state.Lock()
	defer m.state.Unlock()
	w, ok := m.fanout.watch(1, true, "")
	if !ok || m.rendering {
		return w, ok
	}
	m.wake = make(chan struct{}, 1)
	if m.rendering = m.start(m.render); !m.rendering {
		m.fanout.removeWatcher(w)
		return nil, false
	}
	return w, true
}

// leave removes a watcher.
func (m *preview) leave(w *watcher) {
	m.fanout.removeWatcher(w)
	m.wakeRenderer()
}

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
		m.keep(model, shared(r))
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
			out = append(out, shared(r))
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
	if m.fanout.size() == 0 {
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
		if watched { // a panic
			m.state.Lock()
			m.end()
			m.state.Unlock()
		}
		m.changed()
	}()
	canvas := renderer{decoder: codec.Decoder{Limits: m.limits, Memory: m.memory}}
	for {
		f, r, others, more := m.next()
		if !more {
			watched = false
			return
		}
		if r == nil {
			<-m.wake
			continue
		}
		jpeg, err := canvas.draw(&f, append(others, r)...)
		f.Lease.Release()
		for _, r := range append(others, r) {
			r.Release()
		}
		if err == nil {
			m.fanout.send(jpeg, "")
		}
	}
}

// renderer holds the memory for drawing pictures.
type renderer struct {
	decoder codec.Decoder
	pixels  []byte // for a frame that was scaled or is not RGB24
	rgba    *image.RGBA
	rgb     []byte
}

// draw returns a JPEG of the frame with the models' results, in new memory. Outputs that cannot be drawn are left
// out. draw restores a scaled frame to the size of the source, because results are in pixels of the source; a large
// JPEG stays in the size allowed for decoding.
func (p *renderer) draw(f *stream.Frame, results ...*stream.Result) ([]byte, error) {
	shrink := 1
	if f.Codec != stream.RGB24 || f.SourceWidth != 0 {
		var err error
		if shrink, err = p.decode(f); err != nil {
			return nil, err
		}
	}
	scale := 1 / float64(shrink)
	var all []overlay.Result
	for _, r := range results {
		if items, err := overlay.ReadResult(tensors(r)); err == nil && !items.Empty() {
			all = append(all, items.Scale(scale, scale))
		}
	}
	if len(all) == 0 {
		return codec.EncodeJPEG(nil, f.Payload, f.Width, f.Height, previewQuality)
	}
	if p.rgba == nil || p.rgba.Rect != image.Rect(0, 0, f.Width, f.Height) {
		p.rgba = image.NewRGBA(image.Rect(0, 0, f.Width, f.Height))
		p.rgb = make([]byte, 3*f.Width*f.Height)
	}
	for i, o := 0, 0; i != len(p.rgb); i, o = i+3, o+4 {
		s, d := f.Payload[i:i+3:i+3], p.rgba.Pix[o:o+4:o+4]
		d[0], d[1], d[2], d[3] = s[0], s[1], s[2], 255
	}
	for _, items := range all {
		overlay.Draw(p.rgba, items, "")
	}
	for i, o := 0, 0; i != len(p.rgb); i, o = i+3, o+4 {
		s, d := p.rgba.Pix[o:o+3:o+3], p.rgb[i:i+3:i+3]
		d[0], d[1], d[2] = s[0], s[1], s[2]
	}
	return codec.EncodeJPEG(nil, p.rgb, f.Width, f.Height, previewQuality)
}

// decode decodes a picture to RGB pixels, in the size before scaling. A JPEG with more pixels than allowed is decoded
// at 1/2, 1/4 or 1/8 of its size, as for the model.
func (p *renderer) decode(f *stream.Frame) (shrink int, err error) {
	shrink = 1
	whole := codec.Target{SourceWidth: f.SourceWidth, SourceHeight: f.SourceHeight}
	width, height := cmp.Or(f.SourceWidth, f.Width), cmp.Or(f.SourceHeight, f.Height)
	raw := codec.NV12
	var info codec.Info
	switch f.Codec {
	case stream.NV12:
	case stream.RGB24:
		raw = codec.RGB24
	default:
		if info, err = p.decoder.Limits.Header(f.Payload); err != nil {
			return shrink, err
		}
		w, h := info.Upright()
		width, height = w, h
		for most := p.decoder.Limits.MaxDecoded; info.Kind == codec.JPEG && shrink < 8 && most > 0 &&
			width*height > most; {
			shrink *= 2
			width, height = (w+shrink-1)/shrink, (h+shrink-1)/shrink
		}
		whole.Width, whole.Height = width, height
	}
	n := whole.Size(width, height)
	p.pixels = slices.Grow(p.pixels[:0], n)[:n]
	if info != (codec.Info{}) {
		_, err = p.decoder.DecodeInfo(f.Payload, info, whole, p.pixels)
	} else {
		_, err = p.decoder.Convert(f.Payload, raw, f.Width, f.Height, whole, p.pixels)
	}
	f.Width, f.Height, f.Payload = width, height, p.pixels
	return shrink, err
}
