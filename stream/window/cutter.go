package window

import (
	"encoding/binary"
	"math"
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
)

// cutter keeps what a stream has sent for windows that are not complete.
//
// Samples and rows lie in a lease that is written to behind its end only, so
// that requests may hold views of it; when it is full, what is still needed
// moves to another. A cutter holds at most two windows and a frame.
type cutter struct {
	model    *stream.Model
	window   *Window
	oneShot  bool
	seen     int64 // rows since the first, or since a reset
	next     int64 // the first row of the next window
	lease    *buf.Buf
	from     int            // bytes of lease before row next; end when that has not come
	end      int            // bytes of lease in use
	pictures []stream.Frame // instead: those from next on, with their leases
}

var _ stream.Assembler = (*cutter)(nil)

// filling are the parameters of a result that belongs to no window.
var filling = stream.Params{"window": "filling"}

// Whole implements stream.Assembler: a batch axis says so, and a tensor that is a
// request of its own, or comes where pictures are cut.
func (c *cutter) Whole(f *stream.Frame) bool {
	m := c.model
	return f.Codec == stream.Tensors &&
		(c.oneShot || m.Image != nil || len(f.Inputs) == 1 && len(f.Inputs[0].Shape) > len(m.Inputs[0].Shape))
}

// Assemble implements stream.Assembler: r becomes a request for the windows that
// are complete now, a row for each. With none, the frame's memory is given back.
func (c *cutter) Assemble(r *stream.Request) (windows int, params stream.Params, err error) {
	if r.Discontinuity {
		c.Reset()
	}
	windows, last, err := c.cut(r)
	if err != nil || c.oneShot {
		c.Reset()
	}
	switch {
	case err != nil:
		return 0, nil, err
	case windows == 0:
		return 0, filling, nil
	}
	return windows, stream.Params{"window_end": last}, nil
}

// cut keeps r's frame, and gives r the windows that it completes. last is the number
// of the last sample in them.
func (c *cutter) cut(r *stream.Request) (windows int, last int64, err error) {
	m, w := c.model, c.window
	n, err := count(m, &r.Frame)
	if err != nil {
		return 0, 0, err
	}
	switch windows = c.completes(n); {
	case windows > m.MaxBatch:
		return 0, 0, stream.Errorf(stream.TooLarge, "window.hop", "is %d, so that a frame of %d completes %d windows, and model %s takes %d at once (batching.max_size): send at most %d in one frame",
			w.Hop, n, windows, m.Name, m.MaxBatch, m.MaxBatch*w.Hop)
	case windows == 0 && c.oneShot:
		return 0, 0, stream.Errorf(stream.InvalidArgument, "window.length", "is %d and this request has %d: send a whole window, or open a stream", w.Length, n)
	}
	last = c.next + int64(max(windows-1, 0))*int64(w.Hop) + int64(w.Length) - 1
	if m.Image != nil {
		c.addPicture(r, windows)
		return windows, last, nil
	}
	return windows, last, c.addRows(r, n, windows)
}

// completes returns how many windows n more rows complete.
func (c *cutter) completes(n int) int {
	left := c.seen + int64(n) - c.next - int64(c.window.Length)
	if left < 0 {
		return 0
	}
	return int(min(left/int64(c.window.Hop)+1, math.MaxInt32))
}

// rowBytes returns the size of one sample of all channels, or of one row.
func (c *cutter) rowBytes() int {
	in := &c.model.Inputs[0]
	return stream.Elements(in.Shape[1:]) * in.Datatype.Size()
}

// addRows keeps the frame's n rows, and gives r the windows that they complete.
func (c *cutter) addRows(r *stream.Request, n, windows int) error {
	size := c.rowBytes()
	skip := int(min(max(c.next-c.seen, 0), int64(n))) // between two windows
	dst, err := c.room((n-skip)*size, size)
	if err != nil {
		return err
	}
	switch r.Codec {
	case stream.PCM16:
		pcm16(dst, r.Payload[skip*size/2:])
	case stream.PCMFloat:
		copy(dst, r.Payload[skip*size:])
	default:
		copy(dst, r.Inputs[0].Data[skip*size:])
	}
	c.seen += int64(n)
	r.Lease.Release()
	r.Lease, r.Payload, r.Inputs = nil, nil, nil
	if windows == 0 {
		return nil
	}
	in, hop := &c.model.Inputs[0], c.window.Hop
	span := ((windows-1)*hop + c.window.Length) * size
	r.Codec, r.Assembled, r.Lease = stream.Tensors, &stream.Assembled{Stride: hop * size}, c.lease.Retain()
	r.Inputs = []stream.Tensor{{
		Name: in.Name, Datatype: in.Datatype, Shape: append([]int{windows}, in.Shape...),
		Data: c.lease.Bytes()[c.from : c.from+span],
	}}
	c.next += int64(windows) * int64(hop)
	c.from = c.end - int(max(c.seen-c.next, 0))*size
	return nil
}

// room returns n bytes behind what is kept.
func (c *cutter) room(n, rowBytes int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if c.lease == nil || c.end+n > c.lease.Len() {
		kept := c.end - c.from
		l, err := c.window.Memory.Lease(kept + n + c.window.Length*rowBytes)
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
func (c *cutter) addPicture(r *stream.Request, windows int) {
	if c.seen++; c.seen > c.next {
		c.pictures = append(c.pictures, held(r.Frame))
	}
	if windows == 0 {
		r.Lease.Release()
		r.Lease, r.Payload = nil, nil
		return
	}
	r.Assembled = &stream.Assembled{Frames: slices.Clone(c.pictures)}
	for _, p := range c.pictures[:len(c.pictures)-1] { // the last is r's own
		held(p)
	}
	c.next += int64(c.window.Hop)
	c.forget(min(c.window.Hop, len(c.pictures)))
}

// held returns f, with its memory held once more.
func held(f stream.Frame) stream.Frame {
	if f.Lease != nil {
		f.Lease.Retain()
	}
	return f
}

// forget gives up the oldest n pictures.
func (c *cutter) forget(n int) {
	for _, p := range c.pictures[:n] {
		p.Lease.Release()
	}
	c.pictures = slices.Delete(c.pictures, 0, n)
}

// Reset implements stream.Assembler.
func (c *cutter) Reset() {
	c.forget(len(c.pictures))
	c.lease.Release()
	c.lease, c.from, c.end, c.seen, c.next = nil, 0, 0, 0, 0
}

// Adopt implements stream.Assembler: windows of the same length and hop of the same
// input go on.
func (c *cutter) Adopt(m *stream.Model) bool {
	if !same(c.model, m) {
		return false
	}
	c.model, c.window = m, m.Assembly.(*Window)
	return true
}
