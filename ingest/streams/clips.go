package streams

import (
	"encoding/json"
	"io"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/sinks"
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
	f.pictures.Limits, f.pictures.Memory = f.a.opts.Pictures(), f.a.backend.Memory()
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
		f.pictures.Clear()
		return
	case e.r.Partial:
		return
	}
	defer f.dropPicture(e.r.Seq)
	if len(list) > 0 {
		f.clips.Events(e.o.c.Model, list, f.pictures.Picture(e.r))
	}
	f.clips.Result(e.o.c.Model, time.Duration(e.r.CaptureUS)*time.Microsecond, clips.ObjectLine(e.r))
}

// endClips ends the present clip, and waits until all are written.
func (f *runner) endClips() {
	f.clips.Close()
	f.writers.Stop()
	f.writers.Wait()
}

// clipPicture returns the newest clip with a picture, or "", and a function that reads the picture of its first event,
// with the objects if they were drawn.
func (f *runner) clipPicture() (string, func() ([]byte, error)) {
	c := f.pictured.Load()
	if c == nil {
		return "", nil
	}
	return c.ID, func() ([]byte, error) {
		file, err := f.a.opts.Clips.File(c, ".1.boxes.jpg")
		if err != nil {
			file, err = f.a.opts.Clips.File(c, ".1.jpg")
		}
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return io.ReadAll(io.LimitReader(file, sinks.MaxPicture+1))
	}
}

// clipReady writes a line about a clip, as an event, to the watchers and the sinks.
func (f *runner) clipReady(c *clips.Clip) {
	if c.Pictures > 0 {
		f.pictured.Store(c)
	}
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

// dropPicture tells that a model has answered a frame. The frame is dropped after the answers of all models.
func (f *runner) dropPicture(seq uint64) {
	if f.clips != nil {
		f.pictures.Drop(seq)
	}
}
