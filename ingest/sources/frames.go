package sources

import (
	"errors"

	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Frames reads an open video into leased memory. One goroutine may use Frames.
type Frames struct {
	r         *video.Reader
	memory    *buf.Pool
	discarded []byte // buffer for frames without memory
}

// NewFrames reads raw NV12 frames from r. The caller closes r.
func NewFrames(r *video.Reader, memory *buf.Pool) *Frames { return &Frames{r: r, memory: memory} }

// Next waits for a frame. CaptureUS is the frame's presentation time; the caller sets Seq. A frame without a Lease
// was read and lost, because the byte budget is exhausted; the source continues. The errors are the errors of
// video.Reader.Next; io.EOF at the end.
func (f *Frames) Next() (stream.Frame, error) {
	v, size, err := f.r.Wait()
	out := stream.Frame{Codec: stream.NV12, Width: v.Width, Height: v.Height, CaptureUS: v.PTS.Microseconds(),
		Captured: true}
	if err != nil {
		return out, err
	}
	if info := f.r.Info(); info.Width != v.Width || info.Height != v.Height {
		out.SourceWidth, out.SourceHeight = info.Width, info.Height
	}
	lease, err := f.memory.Lease(size)
	dst := f.discarded
	switch {
	case err == nil:
		dst = lease.Bytes()
	case !errors.Is(err, buf.ErrBudget):
		return out, err
	case len(dst) < size:
		f.discarded = make([]byte, size)
		dst = f.discarded
	}
	if err := f.r.Fill(dst[:size]); err != nil {
		lease.Release()
		return out, err
	}
	out.Late = f.r.Late()
	if lease != nil {
		out.Payload, out.Lease = lease.Bytes(), lease
	}
	return out, nil
}
