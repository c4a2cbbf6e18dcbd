package streams

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/ingest/clips"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
)

// checkClips returns an error for clips without a folder.
func (a *Adapter) checkClips(c Config) error {
	if c.Clips.Enabled() && a.opts.Clips == nil {
		return stream.Errorf(stream.InvalidArgument, "clips",
			"need a folder: set clips.folder or data of the server, or leave the clips out")
	}
	return nil
}

// modelList returns the names of the stream's models.
func (c *Config) modelList() (names []string) {
	for _, m := range c.models() {
		names = append(names, m.Model)
	}
	return names
}

func (f *runner) startClips() {
	if f.a.opts.Clips == nil {
		return
	}
	f.pictures.limits, f.pictures.memory = f.a.opts.Pictures(), f.a.backend.Memory()
	f.clips = clips.NewRecorder(clips.Env{Store: f.a.opts.Clips, Stream: f.name, Memory: f.a.backend.Memory(),
		Start: func(write func()) bool { return f.writers.Go("clip", write, nil) },
		Ready: f.clipReady, Log: f.a.opts.Log})
	f.clips.Set(f.now.Clips, f.now.modelList())
}

// record passes the events and the objects of a result to the clips.
func (f *runner) record(e ending, list []clips.Incident) {
	switch {
	case f.clips == nil:
		return
	case !f.clips.Enabled():
		f.pictures.clear()
		return
	case e.r.Partial:
		return
	}
	defer f.dropPicture(e.r.Seq)
	if len(list) > 0 {
		picture := f.pictures.take(e.r.Seq)
		defer picture.Lease.Release()
		f.clips.Events(e.o.c.Model, list, f.pictures.picture(picture, e.r))
	}
	f.clips.Result(e.o.c.Model, time.Duration(e.r.CaptureUS)*time.Microsecond, objectLine(e.r))
}

// endClips ends the present clip, and waits until all are written.
func (f *runner) endClips() {
	f.clips.Close()
	f.writers.Stop()
	f.writers.Wait()
}

// appendEvents appends the elements of a tensor of BYTES, copied.
func appendEvents(list []json.RawMessage, data []byte) []json.RawMessage {
	for len(data) >= 4 {
		n := int(binary.LittleEndian.Uint32(data))
		if n > len(data)-4 {
			break
		}
		list = append(list, append(json.RawMessage(nil), data[4:4+n]...))
		data = data[4+n:]
	}
	return list
}

// tensors returns the outputs of a result as the overlay reads them.
func tensors(r *stream.Result) []oip.Tensor {
	out := make([]oip.Tensor, len(r.Outputs))
	for i, t := range r.Outputs {
		out[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return out
}

// objectLine returns the end of a line about the boxes of a result; nil without boxes. See clips.Recorder.Result.
func objectLine(r *stream.Result) []byte {
	all, err := overlay.ReadResult(tensors(r))
	if err != nil || len(all.Boxes) == 0 {
		return nil
	}
	line := fmt.Appendf(nil, `"width":%d,"height":%d,"objects":[`, r.Width, r.Height)
	for i, b := range all.Boxes {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, `{"box":[`...)
		for k, v := range []float64{b.X1, b.Y1, b.X2, b.Y2} {
			if k > 0 {
				line = append(line, ',')
			}
			line = strconv.AppendFloat(line, math.Round(v*10)/10, 'f', -1, 64)
		}
		line = append(line, ']')
		if b.ID != 0 {
			line = strconv.AppendInt(append(line, `,"track":`...), b.ID, 10)
		}
		if b.Label != "" {
			line = oip.AppendString(append(line, `,"class":`...), b.Label)
		} else if b.Number >= 0 {
			line = strconv.AppendInt(append(line, `,"class":`...), int64(b.Number), 10)
		}
		if !math.IsNaN(b.Score) {
			line = strconv.AppendFloat(append(line, `,"score":`...), math.Round(b.Score*1000)/1000, 'f', -1, 64)
		}
		line = append(line, '}')
	}
	return append(line, ']', '}')
}

// clipReady writes a line about a clip, as an event, to the watchers and the sinks.
func (f *runner) clipReady(c *clips.Clip) {
	ids := []string{}
	for _, e := range c.Events {
		ids = append(ids, e.ID)
	}
	line, err := json.Marshal(struct {
		Stream string   `json:"stream"`
		Type   string   `json:"type"` // distinguishes the line from a result
		ID     string   `json:"id"`
		Clip   string   `json:"clip"`
		Events []string `json:"events"`
		Start  int64    `json:"start"`
		End    int64    `json:"end"`
		Cut    string   `json:"cut,omitempty"`
	}{f.name, "clip", "clip-" + c.ID, c.ID, ids, c.StartUS, c.StartUS + int64(c.Seconds*1e6), string(c.Cut)})
	if err != nil {
		return
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	f.results.send(line, "")
	for _, s := range f.openSinks() {
		s.Write(line)
	}
}

// pictureFrames keeps the frames of a stream with clips until their results, for the pictures of events.
type pictureFrames struct {
	limits codec.Limits
	memory codec.Memory

	mu     sync.Mutex
	frames []pictureFrame
}

// pictureFrame is a frame with its lease, and the number of models that have not answered the frame.
type pictureFrame struct {
	stream.Frame
	waits int
}

// maxPictureFrames bounds the frames of a stream. Frames of a model that was closed stay until this bound.
const maxPictureFrames = 64

// dropPicture tells that a model has answered a frame. The frame is dropped after the answers of all models.
func (f *runner) dropPicture(seq uint64) {
	if f.clips != nil {
		f.pictures.drop(seq)
	}
}

// index returns the place of a frame, or -1. mu is held.
func (p *pictureFrames) index(seq uint64) int {
	return slices.IndexFunc(p.frames, func(f pictureFrame) bool { return f.Seq == seq })
}

func (p *pictureFrames) drop(seq uint64) {
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

// add keeps a frame until the answers of a number of models.
func (p *pictureFrames) add(f stream.Frame, models int) {
	if models == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.frames) == maxPictureFrames {
		p.dropOldest()
	}
	f.Lease.Retain()
	p.frames = append(p.frames, pictureFrame{f, models})
}

func (p *pictureFrames) dropOldest() {
	p.frames[0].Lease.Release()
	n := copy(p.frames, p.frames[1:])
	p.frames[n] = pictureFrame{}
	p.frames = p.frames[:n]
}

// take returns the frame of a result, with a reference for the caller. A frame without a lease was not kept.
func (p *pictureFrames) take(seq uint64) stream.Frame {
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

// clear drops all frames.
func (p *pictureFrames) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.frames) > 0 {
		p.dropOldest()
	}
}

// picture returns the picture of a frame with events; nil when the frame was not kept.
func (p *pictureFrames) picture(f stream.Frame, r *stream.Result) *clips.Picture {
	if f.Lease == nil {
		return nil
	}
	f.Lease.Retain()
	r = shared(r)
	return &clips.Picture{
		Draw: func() (plain, drawn []byte, err error) {
			canvas := renderer{decoder: codec.Decoder{Limits: p.limits, Memory: p.memory}}
			own := f
			if plain, err = canvas.draw(&own); err == nil {
				own = f
				drawn, err = canvas.draw(&own, r)
			}
			return plain, drawn, err
		},
		Release: func() {
			f.Lease.Release()
			r.Release()
		},
	}
}
