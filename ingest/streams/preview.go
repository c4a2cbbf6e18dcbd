package streams

import (
	"image"
	"slices"
	"sync"

	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
)

const (
	previewFrames  = 8 // most frames that wait for their result
	previewQuality = 80
)

// preview draws results over their frames while there are watchers. It keeps the newest
// frames by their seq and draws the newest result only, in its own goroutine, so that
// drawing delays nothing else.
type preview struct {
	fanout
	start func(render func()) bool // starts a goroutine

	state     sync.Mutex
	rendering bool
	frames    []stream.Frame // each holds its lease
	frame     stream.Frame   // the next to be drawn, with its result
	result    *stream.Result // nil = none
	wake      chan struct{}  // of the renderer
}

// watchPictures adds a watcher.
func (m *preview) watchPictures() (*watcher, bool) {
	m.state.Lock()
	defer m.state.Unlock()
	w, ok := m.fanout.watch(1, true)
	if !ok || m.rendering {
		return w, ok
	}
	m.wake = make(chan struct{}, 1)
	if m.rendering = m.start(m.render); !m.rendering {
		m.fanout.leave(w)
		return nil, false
	}
	return w, true
}

// leave removes a watcher.
func (m *preview) leave(w *watcher) {
	m.fanout.leave(w)
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

// show takes over a result: it is drawn if its frame is kept, and released otherwise.
func (m *preview) show(r *stream.Result) {
	m.state.Lock()
	defer m.state.Unlock()
	for len(m.frames) > 0 && m.frames[0].Seq < r.Seq {
		m.dropOldest()
	}
	if !m.rendering || r.Partial || r.Outcome != stream.Answered || len(m.frames) == 0 || m.frames[0].Seq != r.Seq {
		r.Release()
		return
	}
	m.drop()
	m.frame, m.result = m.frames[0], r
	m.frame.Lease.Retain()
	m.dropOldest()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// drop releases what was to be drawn next.
func (m *preview) drop() {
	if m.result != nil {
		m.result.Release()
		m.frame.Lease.Release()
		m.result, m.frame = nil, stream.Frame{}
	}
}

// next returns the frame and result to be drawn. more is false when there are no
// watchers: then nothing is kept.
func (m *preview) next() (f stream.Frame, r *stream.Result, more bool) {
	m.state.Lock()
	defer m.state.Unlock()
	if m.fanout.size() == 0 {
		m.end()
		return f, nil, false
	}
	f, r = m.frame, m.result
	m.frame, m.result = stream.Frame{}, nil
	return f, r, true
}

func (m *preview) end() {
	m.rendering = false
	m.drop()
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
			defer m.state.Unlock()
			m.end()
		}
	}()
	var canvas renderer
	for {
		f, r, more := m.next()
		if !more {
			watched = false
			return
		}
		if r == nil {
			<-m.wake
			continue
		}
		jpeg, err := canvas.draw(&f, r)
		f.Lease.Release()
		r.Release()
		if err == nil {
			m.fanout.send(jpeg)
		}
	}
}

// renderer has the memory in which pictures are drawn.
type renderer struct {
	decoder codec.Decoder // of coded frames, whose size the model has accepted
	pixels  []byte        // of such a frame
	rgba    *image.RGBA
	rgb     []byte
}

// draw returns a JPEG of the frame, in new memory, with the model's results. Outputs
// that cannot be drawn are left out.
func (p *renderer) draw(f *stream.Frame, r *stream.Result) ([]byte, error) {
	if f.Codec != stream.RGB24 {
		if err := p.decode(f); err != nil {
			return nil, err
		}
	}
	outputs := make([]oip.Tensor, len(r.Outputs))
	for i, t := range r.Outputs {
		outputs[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	items, err := overlay.ReadResult(outputs)
	if err != nil || items.Empty() {
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
	overlay.Draw(p.rgba, items, "")
	for i, o := 0, 0; i != len(p.rgb); i, o = i+3, o+4 {
		s, d := p.rgba.Pix[o:o+3:o+3], p.rgb[i:i+3:i+3]
		d[0], d[1], d[2] = s[0], s[1], s[2]
	}
	return codec.EncodeJPEG(nil, p.rgb, f.Width, f.Height, previewQuality)
}

// decode replaces a coded picture by raw pixels.
func (p *renderer) decode(f *stream.Frame) error {
	info, err := p.decoder.Limits.Header(f.Payload)
	if err != nil {
		return err
	}
	var whole codec.Target
	f.Width, f.Height = info.Upright()
	n := whole.Size(f.Width, f.Height)
	p.pixels = slices.Grow(p.pixels[:0], n)[:n]
	if _, err := p.decoder.DecodeInfo(f.Payload, info, whole, p.pixels); err != nil {
		return err
	}
	f.Payload = p.pixels
	return nil
}
