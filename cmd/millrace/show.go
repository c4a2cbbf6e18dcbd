package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millrace/client/play"
	"millrace/examples/spotter"
	"millrace/ingest/streams"
	"millrace/internal/clip/truth"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/server"
)

// showThreshold is the least score of a digit that is shown, chosen in training.
const showThreshold = "0.3"

// show is what the demo shows: a clip, the model that watches it, and the truth.
type show struct {
	model  string // its name
	stream string // the name of the server's stream of the clip
	onnx   string // the model's file
	file   string // the clip's
	truth  *truth.Truth
}

// newShow puts the files that the program carries into the cache folder, since
// ONNX Runtime and ffmpeg read files.
func newShow() (*show, error) {
	s := show{model: "spotter", stream: "digits"}
	var err error
	if s.onnx, err = cached("spotter.onnx", spotter.Model); err != nil {
		return nil, err
	}
	if s.file, err = cached("digits.mp4", spotter.Clip); err != nil {
		return nil, err
	}
	s.truth, err = truth.Read(bytes.NewReader(spotter.Truth))
	return &s, err
}

// cached returns a file in the cache folder that holds data. Its path has the
// digest, so that programs of different ages share the folder.
func cached(name string, data []byte) (file string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(data)
	dir := filepath.Join(cache, "millrace", "demo-"+hex.EncodeToString(sum[:8]))
	file = filepath.Join(dir, name)
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, data) {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Two demos may start at once: the file appears whole.
	f, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is there after the rename
	_, err = f.Write(data)
	if err = cmp.Or(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	return file, os.Rename(f.Name(), file)
}

// configure has the server load the model, and the motion detector beside it for
// the console, which offers the clip.
func (s *show) configure(cfg *server.Config) error {
	cfg.Clip = spotter.Clip
	return cfg.AddModels(fmt.Sprintf("%s=%q,input.image.width=320,input.image.height=240,input.image.layout=NCHW,input.image.color=RGB,"+
		"input.image.scale=0.00392157,output.boxes.boxes=boxes,output.boxes.scores=scores,output.boxes.threshold=%s", s.model, s.onnx, showThreshold),
		"motion=motion")
}

// looped is the clip as a stream of the server's own, over and over. It is paused,
// so that it takes no time of the model's until the clip was judged.
func (s *show) looped() streams.Config {
	return streams.Config{Name: s.stream, Source: s.file, Model: s.model, Loop: true, Paused: true}
}

// judge compares what comes back with the truth.
type judge struct {
	truth  *truth.Truth
	score  truth.Score
	frames int

	mu     sync.Mutex
	newest []overlay.Box
}

// reply takes one ending, from one goroutine.
func (j *judge) reply(r play.Reply) {
	if !r.Answered() || r.Partial {
		return
	}
	outputs := make([]oip.Tensor, len(r.Outputs))
	for i, t := range r.Outputs {
		outputs[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	result, err := overlay.ReadResult(outputs)
	if err != nil {
		return
	}
	if r.Width > 0 && r.Height > 0 { // the truth is about the clip's own size
		result = result.Scale(float64(j.truth.Width)/float64(r.Width), float64(j.truth.Height)/float64(r.Height))
	}
	var found []truth.Detection
	for _, b := range result.Boxes {
		found = append(found, truth.Detection{Box: truth.Box{b.X1, b.Y1, b.X2, b.Y2}, Class: b.Number})
	}
	if at := j.truth.At(r.PTS.Seconds()); at != nil {
		j.score.AddClassified(at, found)
		j.frames++
	}
	j.mu.Lock()
	j.newest = result.Boxes
	j.mu.Unlock()
}

// seen names the digits of the newest result, from left to right: "3 7 7".
func (j *judge) seen() string {
	j.mu.Lock()
	boxes := slices.Clone(j.newest)
	j.mu.Unlock()
	if len(boxes) == 0 {
		return "nothing"
	}
	slices.SortFunc(boxes, func(a, b overlay.Box) int { return cmp.Compare(a.X1, b.X1) })
	var names []string
	for _, b := range boxes {
		names = append(names, strconv.Itoa(b.Number))
	}
	return strings.Join(names, " ")
}
