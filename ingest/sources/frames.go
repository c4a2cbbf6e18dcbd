package sources

import (
	"errors"

	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Frames reads an open video into leased memory. It is for one goroutine.
type Frames struct {
	r         *video.Reader
	memory    *buf.Pool
	discarded []byte // frames for which there is no memory are read into it
}

// NewFrames reads raw RGB24 frames from r, which the caller closes.
func NewFrames(r *video.Reader, memory *buf.Pool) *Frames { return &Frames{r: r, memory: memory} }

// Next waits for a frame. CaptureUS is its presentation time; the caller sets Seq. A
// frame without a Lease was read and lost, because the byte budget is exhausted; the
// source continues. Errors are those of video.Reader.Next, io.EOF at the end.
func (f *Frames) Next() (stream.Frame, error) {
	info := f.r.Info()
	out := stream.Frame{Codec: stream.RGB24, Width: info.Width, Height: info.Height}
	lease, err := f.memory.Lease(f.r.FrameSize())
	dst := f.discarded
	switch {
	case err == nil:
		dst = lease.Bytes()
	case !errors.Is(err, buf.ErrBudget):
		return out, err
	case dst == nil:
		f.discarded = make([]byte, f.r.FrameSize())
		dst = f.discarded
	}
	v, err := f.r.Next(dst)
	if err != nil {
		lease.Release()
		return out, err
	}
	out.CaptureUS = v.PTS.Microseconds()
	if lease != nil {
		out.Payload, out.Lease = lease.Bytes(), lease
	}
	return out, nil
}
