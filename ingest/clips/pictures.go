package clips

import (
	"slices"
	"sync"

	"millrace/ingest/frames"
	"millrace/internal/codec"
	"millrace/stream"
)

// Pictures keeps the frames of a stream with clips until their results, for the pictures of events.
type Pictures struct {
	Limits codec.Limits // of coded pictures
	Memory codec.Memory // counts the memory for decoding

	mu     sync.Mutex
	frames []pictureFrame
}

// pictureFrame is a frame with its lease, and the number of models that have not answered the frame.
type pictureFrame struct {
	stream.Frame
	waits int
}

// maxFrames bounds the frames of a stream. Frames of a model that was closed stay until this bound.
const maxFrames = 64

// index returns the place of a frame, or -1. mu is held.
func (p *Pictures) index(seq uint64) int {
	return slices.IndexFunc(p.frames, func(f pictureFrame) bool { return f.Seq == seq })
}

// Drop tells that a model has answered a frame, which is dropped after the answers of all models.
func (p *Pictures) Drop(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.index(seq)
	if i < 0 {
		return
	}
	if p.frames[i].waits--; p.frames[i].waits <= 0 {
		p.frames[i].Lease.Release()
		p.frames = slices.Delete(p.frames, i, i+1)
	}
}

// Add keeps a frame until the answers of a number of models.
func (p *Pictures) Add(f stream.Frame, models int) {
	if models == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.frames) == maxFrames {
		p.dropOldest()
	}
	f.Lease.Retain()
	p.frames = append(p.frames, pictureFrame{f, models})
}

func (p *Pictures) dropOldest() {
	p.frames[0].Lease.Release()
	n := copy(p.frames, p.frames[1:])
	p.frames[n] = pictureFrame{}
	p.frames = p.frames[:n]
}

// take returns the frame of a result, with a reference for the caller. A frame without a lease was not kept.
func (p *Pictures) take(seq uint64) stream.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.index(seq)
	if i < 0 {
		return stream.Frame{}
	}
	f := p.frames[i].Frame
	f.Lease.Retain()
	return f
}

// Clear drops all frames.
func (p *Pictures) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.frames) > 0 {
		p.dropOldest()
	}
}

// Picture returns the picture of a frame with events; nil when the frame was not kept.
func (p *Pictures) Picture(r *stream.Result) *Picture {
	f := p.take(r.Seq)
	if f.Lease == nil {
		return nil
	}
	r = r.Shared()
	return &Picture{
		Draw: func() (plain, drawn []byte, err error) {
			canvas := frames.Canvas{Decoder: codec.Decoder{Limits: p.Limits, Memory: p.Memory}}
			own := f
			if plain, err = canvas.Draw(&own); err == nil {
				own = f
				drawn, err = canvas.Draw(&own, r)
			}
			return plain, drawn, err
		},
		Release: func() {
			f.Lease.Release()
			r.Release()
		},
	}
}
