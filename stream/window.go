package stream

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"millrace/internal/buf"
)

// Window says that a model looks at windows of its streams, which overlap or
// not: a client sends each sample once. What is counted is samples, rows of a
// tensor or pictures, whatever the model's one input is: FP32 [Length] or
// [Length, channels] takes PCM (and rows), [Length, features...] takes rows, and
// a model with an Image takes pictures, its input being [Length] of them.
type Window struct {
	Length int       // of a window, >= 1: the input's first dimension
	Hop    int       // from the start of a window to that of the next, >= 1
	Memory *buf.Pool // of what a stream keeps for its next window
}

// cutter keeps what a stream has sent for windows that are not complete. It is
// used under the stream's lock.
//
// Samples and rows lie in a lease that is written to behind its end only, so
// that requests may hold views of it; when it is full, what is still needed
// moves to another. A cutter holds at most two windows and a frame.
type cutter struct {
	window   *Window
	rowBytes int
	seen     int64 // rows since the first, or since a break
	next     int64 // the first row of the next window
	lease    *buf.Buf
	from     int     // bytes of lease before row next; end when that has not come
	end      int     // bytes of lease in use
	pictures []Frame // instead: those from next on, with their leases
}

// Cut is what a request is made of for a model with windows. Samples and rows: its
// one input is [Rows, Length, ...], whose rows begin Step bytes after each other and
// may overlap. Pictures: those of its one row, the oldest first and its own frame
// last.
type Cut struct {
	Step     int
	Pictures []Frame
}

// release gives the pictures' memory back. The last is the request's own.
func (c *Cut) release() {
	if c == nil || len(c.Pictures) == 0 {
		return
	}
	for _, p := range c.Pictures[:len(c.Pictures)-1] {
		p.Lease.Release()
	}
	c.Pictures = nil
}

// whole says whether f brings the model's input as it is: where there are no
// windows to cut, a batch axis says so, or the frame is a request of its own.
func (s *Stream) whole(m *Model, f *Frame) bool {
	if m.Window == nil {
		return true
	}
	return f.Codec == Tensors &&
		(s.opts.OneShot || m.Image != nil || len(f.Inputs) == 1 && len(f.Inputs[0].Shape) > len(m.Inputs[0].Shape))
}

// cut adds r's frame to what its stream has sent, and makes r a request for the
// windows that are complete now: that many rows. With none, the frame's memory is
// given back. A frame that is refused, or finds no memory (buf.ErrBudget), is
// missing: the windows start again behind it.
func (s *Stream) cut(r *Request) (rows int, err error) {
	m, c := s.model, s.cutter
	if c == nil || s.opts.OneShot {
		c = &cutter{window: m.Window}
		if m.Image == nil {
			c.rowBytes = Elements(m.Inputs[0].Shape[1:]) * m.Inputs[0].Datatype.Size()
		}
		if s.opts.OneShot {
			defer c.reset() // the next frame is somebody else's
		} else {
			s.cutter = c
		}
	}
	if r.Discontinuity {
		c.reset()
	}
	n, err := m.windowRows(&r.Frame)
	if err != nil {
		c.reset()
		return 0, err
	}
	if rows = c.completes(n); rows > m.MaxBatch {
		c.reset()
		return 0, Errorf(TooLarge, "window.hop", "is %d, so that a frame of %d completes %d windows, and model %s takes %d at once (batching.max_size): send at most %d in one frame",
			m.Window.Hop, n, rows, m.Name, m.MaxBatch, m.MaxBatch*m.Window.Hop)
	}
	if rows == 0 && s.opts.OneShot {
		return 0, Errorf(InvalidArgument, "window.length", "is %d and this request has %d: send a whole window, or open a stream", m.Window.Length, n)
	}
	end := c.next + int64(max(rows-1, 0))*int64(m.Window.Hop) + int64(m.Window.Length) - 1
	if m.Image != nil {
		c.addPicture(r, rows)
	} else if err = c.addRows(r, &m.Inputs[0], n, rows); err != nil {
		c.reset()
		return 0, err
	}
	if rows > 0 {
		r.result.Params = Params{"window_end": end}
	}
	return rows, nil
}

// windowRows returns how many samples, rows or pictures f brings.
func (m *Model) windowRows(f *Frame) (int, error) {
	if m.Image != nil {
		_, _, err := m.Check(f)
		return 1, err
	}
	if f.Region != (Region{}) {
		return 0, m.checkRegion(f)
	}
	in := &m.Inputs[0]
	sample := 0
	switch f.Codec {
	case PCM16:
		sample = 2
	case PCMFloat:
		sample = 4
	case Tensors:
		return m.tensorRows(f.Inputs)
	}
	switch {
	case sample == 0:
		return 0, Errorf(Unsupported, "codec", "model %s takes samples and rows, not %s frames: send pcm16, pcmf32 or tensors", m.Name, f.Codec)
	case in.Datatype != Float32 || len(in.Shape) > 2:
		return 0, Errorf(Unsupported, "codec", "model %s takes no audio: its input %s is %s %v. Send tensors of n rows", m.Name, in.Name, in.Datatype, in.Shape)
	}
	sample *= Elements(in.Shape[1:])
	if n := len(f.Payload); n == 0 || n%sample != 0 {
		return 0, Errorf(InvalidArgument, "frame", "has %d bytes, and one sample of %s has %d for model %s: send whole samples", n, f.Codec, sample, m.Name)
	}
	return len(f.Payload) / sample, nil
}

func (m *Model) tensorRows(ts []Tensor) (int, error) {
	in := &m.Inputs[0]
	if len(ts) != 1 || ts[0].Name != in.Name {
		return 0, Errorf(InvalidArgument, "inputs", "want one tensor, %q, of rows for the windows of model %s", in.Name, m.Name)
	}
	t := &ts[0]
	if t.Datatype != in.Datatype {
		return 0, Errorf(InvalidArgument, "inputs."+t.Name+".datatype", "is %s, model %s wants %s", t.Datatype, m.Name, in.Datatype)
	}
	if len(t.Shape) != len(in.Shape) || t.Shape[0] < 1 || !slices.Equal(t.Shape[1:], in.Shape[1:]) {
		want := append([]int{-1}, in.Shape[1:]...)
		return 0, Errorf(InvalidArgument, "inputs."+t.Name+".shape", "is %v, model %s wants rows, %v, which it cuts into windows of %d (-1 = any)", t.Shape, m.Name, want, m.Window.Length)
	}
	if err := t.CheckSize("inputs."); err != nil { // a program that embeds the server may not have
		return 0, err
	}
	return t.Shape[0], nil
}

// completes returns how many windows n more rows complete.
func (c *cutter) completes(n int) int {
	left := c.seen + int64(n) - c.next - int64(c.window.Length)
	if left < 0 {
		return 0
	}
	return int(min(left/int64(c.window.Hop)+1, math.MaxInt32))
}

// addRows keeps the frame's n rows, and gives r the windows that they complete.
func (c *cutter) addRows(r *Request, in *TensorSpec, n, windows int) error {
	skip := int(min(max(c.next-c.seen, 0), int64(n))) // between two windows
	dst, err := c.room((n - skip) * c.rowBytes)
	if err != nil {
		return err
	}
	switch r.Codec {
	case PCM16:
		pcm16(dst, r.Payload[skip*c.rowBytes/2:])
	case PCMFloat:
		copy(dst, r.Payload[skip*c.rowBytes:])
	default:
		copy(dst, r.Inputs[0].Data[skip*c.rowBytes:])
	}
	c.seen += int64(n)
	r.Lease.Release()
	r.Lease, r.Payload, r.Inputs = nil, nil, nil
	if windows == 0 {
		return nil
	}
	hop := c.window.Hop
	span := ((windows-1)*hop + c.window.Length) * c.rowBytes
	r.Codec, r.Cut, r.Lease = Tensors, &Cut{Step: hop * c.rowBytes}, c.lease.Retain()
	r.Inputs = []Tensor{{
		Name: in.Name, Datatype: in.Datatype, Shape: append([]int{windows}, in.Shape...),
		Data: c.lease.Bytes()[c.from : c.from+span],
	}}
	c.next += int64(windows) * int64(hop)
	c.from = c.end - int(max(c.seen-c.next, 0))*c.rowBytes
	return nil
}

// room returns n bytes behind what is kept.
func (c *cutter) room(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if c.lease == nil || c.end+n > c.lease.Len() {
		kept := c.end - c.from
		l, err := c.window.Memory.Lease(kept + n + c.window.Length*c.rowBytes)
		if err != nil {
			return nil, err
		}
		l.Resize(l.Cap())
		if c.lease != nil {
			copy(l.Bytes(), c.lease.Bytes()[c.from:c.end])
			c.lease.Release()
		}
		c.lease, c.from, c.end = l, 0, kept
	}
	c.end += n
	return c.lease.Bytes()[c.end-n : c.end], nil
}

// pcm16 turns samples into FP32 of -1 to 1.
func pcm16(dst, src []byte) {
	for ; len(dst) >= 4; dst, src = dst[4:], src[2:] {
		v := float32(int16(binary.LittleEndian.Uint16(src))) / (1 << 15)
		binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
	}
}

// addPicture keeps the frame, and gives r the pictures of the window that it
// completes.
func (c *cutter) addPicture(r *Request, windows int) {
	if c.seen++; c.seen > c.next {
		f := r.Frame
		if f.Lease != nil {
			f.Lease.Retain()
		}
		c.pictures = append(c.pictures, f)
	}
	if windows == 0 {
		r.Lease.Release()
		r.Lease, r.Payload = nil, nil
		return
	}
	r.Cut = &Cut{Pictures: slices.Clone(c.pictures)}
	for _, p := range r.Cut.Pictures[:len(c.pictures)-1] { // the last is r's own
		if p.Lease != nil {
			p.Lease.Retain()
		}
	}
	c.next += int64(c.window.Hop)
	c.forget(min(c.window.Hop, len(c.pictures)))
}

// forget gives up the oldest n pictures.
func (c *cutter) forget(n int) {
	for _, p := range c.pictures[:n] {
		p.Lease.Release()
	}
	m := copy(c.pictures, c.pictures[n:])
	clear(c.pictures[m:])
	c.pictures = c.pictures[:m]
}

// reset forgets everything: what comes is the first again.
func (c *cutter) reset() {
	if c == nil {
		return
	}
	c.forget(len(c.pictures))
	c.lease.Release()
	c.lease, c.from, c.end, c.seen, c.next = nil, 0, 0, 0, 0
}

// MarkDiscontinuity tells that what comes next does not follow on what came: windows
// start again, and are counted from there.
func (s *Stream) MarkDiscontinuity() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutter.reset()
}

// filling is what a result says that belongs to no window.
var filling = Params{"window": "filling"}

// fill ends a frame that completed no window, as an answer without outputs. In
// Latest it waits for the frame before it to be pushed, and neither supersedes
// nor overtakes that.
func (s *Stream) fill(r *Request) {
	r.result.Params = filling
	s.endLocked(r, Answered, "", nil)
}

// before returns the frame, in Latest, that was accepted last before r, or last of
// all, of those that have not been pushed; not counting those that complete no
// window.
func (s *Stream) before(r *Request) *Request {
	var last *Request
	for _, w := range s.waiting {
		if w == r {
			break
		}
		last = w
	}
	if n := len(s.order); last == nil && n > 0 {
		last = s.order[n-1]
	}
	return last
}

// hold has those that completed no window wait for the frame before them.
func (s *Stream) hold(last *Request, behind ...*Request) {
	if last.behind == nil {
		last.behind = new([]*Request)
	}
	*last.behind = append(*last.behind, behind...)
	s.held += len(behind)
}

// released returns them when their turn has come.
func (s *Stream) released(r *Request) []*Request {
	if r.behind == nil {
		return nil
	}
	behind := *r.behind
	r.behind = nil
	s.held -= len(behind)
	return behind
}

// recheck is Check for a frame that has waited for the model old and is to run
// on m.
func (s *Stream) recheck(r *Request, old, m *Model) (rows int, class uint64, err error) {
	switch {
	case r.Cut != nil && sameWindows(old, m) && r.Rows <= m.MaxBatch:
		return r.Rows, r.Class, nil
	case r.Cut == nil && s.whole(m, &r.Frame):
		return m.Check(&r.Frame)
	}
	return 0, 0, Errorf(Conflict, "window", "model %s was replaced by one with other windows: go on with the next frame", m.Name)
}

// sameWindows says whether what was cut for a is right for b.
func sameWindows(a, b *Model) bool {
	if a.Window == nil || b.Window == nil || a.Window.Length != b.Window.Length || a.Window.Hop != b.Window.Hop || (a.Image == nil) != (b.Image == nil) {
		return false
	}
	x, y := &a.Inputs[0], &b.Inputs[0]
	return a.Image != nil || x.Name == y.Name && x.Datatype == y.Datatype && slices.Equal(x.Shape, y.Shape)
}

// noMemory says whether a frame is to be dropped for want of it.
func noMemory(err error) bool { return err != nil && errors.Is(err, buf.ErrBudget) }
