package window

import (
	"encoding/binary"
	"math"
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
)

// cutter keeps a stream's input for incomplete windows.
//
// Samples and rows are in an append-only lease, so that requests may hold views of the lease; when the lease is full,
// the data still needed are copied to a new lease. A cutter holds at most two windows and a frame.
type cutter struct {
	model    *stream.Model
	window   *Window
	oneShot  bool
	seen     int64 // rows seen since the last reset
	next     int64 // the first row of the next window
	lease    *buf.Buf
	from     int            // offset of row next in lease; end = row next has not arrived
	end      int            // bytes of lease in use
	pictures []stream.Frame // for a model of pictures, instead of lease: pictures from next on, with their leases
}

var _ stream.Assembler = (*cutter)(nil)

// filling has the parameters of a result whose frame completes no window.
var filling = stream.Params{"window": "filling"}

// IsRequest implements stream.Assembler: a tensor with a batch axis is a request, and so is a tensor for a one-shot
// request or for a model of pictures.
func (c *cutter) IsRequest(f *stream.Frame) bool {
	m := c.model
	return f.Codec == stream.Tensors &&
		(c.oneShot || m.Image != nil || len(f.Inputs) == 1 && len(f.Inputs[0].Shape) > len(m.Inputs[0].Shape))
}

// Assemble implements stream.Assembler: f becomes the completed windows, a row for each. When no window is complete,
// the memory of f is released.
func (c *cutter) Assemble(f *stream.Frame) (windows int, parts *stream.Assembled, params stream.Params, err error) {
	if f.Discontinuity {
		c.Reset()
	}
	windows, last, parts, err := c.cut(f)
	if err != nil || c.oneShot {
		c.Reset()
	}
	switch {
	case err != nil:
		return 0, nil, nil, err
	case windows == 0:
		return 0, nil, filling, nil
	}
	return windows, parts, stream.Params{"window_end": last}, nil
}

// cut stores f, and turns f into the completed windows. last is the number of the last sample in the windows.
func (c *cutter) cut(f *stream.Frame) (windows int, last int64, parts *stream.Assembled, err error) {
	m, w := c.model, c.window
	n, err := count(m, f)
	if err != nil {
		return 0, 0, nil, err
	}
	switch windows = c.completes(n); {
	case windows > m.MaxBatch:
		return 0, 0, nil, stream.Errorf(stream.TooLarge, "window.hop", "is %d, so that a frame of %d completes %d "+
			"windows, and model %s takes %d at once (batching.max_size): send at most %d in one frame",
			w.Hop, n, windows, m.Name, m.MaxBatch, m.MaxBatch*w.Hop)
	case windows == 0 && c.oneShot:
		return 0, 0, nil, stream.Errorf(stream.InvalidArgument, "window.length",
			"is %d and this request has %d: send a whole window, or open a stream", w.Length, n)
	}
	last = c.next + int64(max(windows-1, 0))*int64(w.Hop) + int64(w.Length) - 1
	if m.Image != nil {
		return windows, last, c.addPicture(f, windows), nil
	}
	parts, err = c.addRows(f, n, windows)
	return windows, last, parts, err
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

// addRows stores the n rows of f, and turns f into the completed windows.
func (c *cutter) addRows(f *stream.Frame, n, windows int) (*stream.Assembled, error) {
	size := c.rowBytes()
	skip := int(min(max(c.next-c.seen, 0), int64(n))) // rows between two windows
	dst, err := c.reserveRows((n-skip)*size, size)
	if err != nil {
		return nil, err
	}
	switch f.Codec {
	case stream.PCM16:
		pcm16(dst, f.Payload[skip*size/2:])
	case stream.PCMFloat:
		copy(dst, f.Payload[skip*size:])
	default:
		copy(dst, f.Inputs[0].Data[skip*size:])
	}
	c.seen += int64(n)
	f.Lease.Release()
	f.Lease, f.Payload, f.Inputs = nil, nil, nil
	if windows == 0 {
		return nil, nil
	}
	in, hop := &c.model.Inputs[0], c.window.Hop
	span := ((windows-1)*hop + c.window.Length) * size
	f.Codec, f.Lease = stream.Tensors, c.lease.Retain()
	f.Inputs = []stream.Tensor{{
		Name: in.Name, Datatype: in.Datatype, Shape: append([]int{windows}, in.Shape...),
		Data: c.lease.Bytes()[c.from : c.from+span],
	}}
	c.next += int64(windows) * int64(hop)
	c.from = c.end - int(max(c.seen-c.next, 0))*size
	return &stream.Assembled{Stride: hop * size}, nil
}

// reserveRows returns n bytes directly after the stored rows.
func (c *cutter) reserveRows(n, rowBytes int) ([]byte, error) {
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

// pcm16 converts 16-bit samples to FP32 from -1 to 1.
func pcm16(dst, src []byte) {
	for ; len(dst) >= 4; dst, src = dst[4:], src[2:] {
		v := float32(int16(binary.LittleEndian.Uint16(src))) / (1 << 15)
		binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
	}
}

// addPicture stores f, and returns the pictures of the completed window.
func (c *cutter) addPicture(f *stream.Frame, windows int) *stream.Assembled {
	if c.seen++; c.seen > c.next {
		c.pictures = append(c.pictures, retained(*f))
	}
	if windows == 0 {
		f.Lease.Release()
		f.Lease, f.Payload = nil, nil
		return nil
	}
	window := &stream.Assembled{Frames: slices.Clone(c.pictures)}
	for _, p := range c.pictures[:len(c.pictures)-1] { // the last is f itself
		retained(p)
	}
	c.next += int64(c.window.Hop)
	c.releasePictures(min(c.window.Hop, len(c.pictures)))
	return window
}

// retained returns f after adding a reference to its memory.
func retained(f stream.Frame) stream.Frame {
	if f.Lease != nil {
		f.Lease.Retain()
	}
	return f
}

// releasePictures releases the oldest n pictures.
func (c *cutter) releasePictures(n int) {
	for _, p := range c.pictures[:n] {
		p.Lease.Release()
	}
	c.pictures = slices.Delete(c.pictures, 0, n)
}

// Reset implements stream.Assembler.
func (c *cutter) Reset() {
	c.releasePictures(len(c.pictures))
	c.lease.Release()
	c.lease, c.from, c.end, c.seen, c.next = nil, 0, 0, 0, 0
}

// Adopt implements stream.Assembler: windows of the same length and hop over the same
// input continue.
func (c *cutter) Adopt(m *stream.Model) bool {
	if !sameWindows(c.model, m) {
		return false
	}
	c.model, c.window = m, m.Assembly.(*Window)
	return true
}
