package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millrace/client/play"
	"millrace/examples/spotter"
	"millrace/ingest/streams"
	"millrace/internal/cachedir"
	"millrace/internal/clip/truth"
	"millrace/internal/newfile"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/server"
)

// scoreThreshold is the minimum score of a digit, chosen in training.
const scoreThreshold = "0.3"

// example is a clip, a model that reads the clip's digits, and the ground truth.
type example struct {
	model  string // the model's name
	stream string // the name of the server stream of the clip
	onnx   string // the model's file
	clip   string // the clip's file
	truth  *truth.Truth
}

// newExample writes the embedded files to the cache folder, since ONNX Runtime and ffmpeg read files.
func newExample() (*example, error) {
	s := example{model: "spotter", stream: "digits"}
	var err error
	if s.onnx, err = cached("spotter.onnx", spotter.Model); err != nil {
		return nil, err
	}
	if s.clip, err = cached("digits.mp4", spotter.Clip); err != nil {
		return nil, err
	}
	s.truth, err = truth.Read(bytes.NewReader(spotter.Truth))
	return &s, err
}

// cached returns the path of a file in the cache folder with the content data. The path contains the digest, so that
// versions of the program with different files share the folder.
func cached(name string, data []byte) (file string, err error) {
	cache, err := cachedir.Dir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	dir := filepath.Join(cache, "demo-"+hex.EncodeToString(sum[:8]))
	file = filepath.Join(dir, name)
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, data) {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Two demos may start at once: a rename makes the complete file appear.
	return file, newfile.Write(file, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// configure adds the model, and the motion detector for use with the clip in the console.
func (s *example) configure(cfg *server.Config) error {
	cfg.Clip = spotter.Clip
	return cfg.AddModels(fmt.Sprintf("%s=%q,input.image.width=320,input.image.height=240,input.image.layout=NCHW,"+
		"input.image.color=RGB,"+
		"input.image.scale=0.00392157,output.boxes.boxes=boxes,output.boxes.scores=scores,output.boxes.threshold=%s",
		s.model, s.onnx, scoreThreshold),
		"motion=motion")
}

// serverStream configures a server stream that repeats the clip. The stream is paused, so that the stream does not
// use the model during the demo's measurement.
func (s *example) serverStream() streams.Config {
	return streams.Config{Name: s.stream, Source: s.clip, Model: s.model, Loop: true, Paused: true}
}

// evaluation compares the results with the ground truth.
type evaluation struct {
	truth  *truth.Truth
	score  truth.Score
	frames int

	mu     sync.Mutex
	newest []overlay.Box
}

// reply adds one ending. Not safe for concurrent use.
func (e *evaluation) reply(r play.Reply) {
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
	if r.Width > 0 && r.Height > 0 { // the ground truth is in pixels of the clip
		result = result.Scale(float64(e.truth.Width)/float64(r.Width), float64(e.truth.Height)/float64(r.Height))
	}
	var found []truth.Detection
	for _, b := range result.Boxes {
		found = append(found, truth.Detection{Box: truth.Box{b.X1, b.Y1, b.X2, b.Y2}, Class: b.Number})
	}
	if at := e.truth.At(r.PTS.Seconds()); at != nil {
		e.score.AddClassified(at, found)
		e.frames++
	}
	e.mu.Lock()
	e.newest = result.Boxes
	e.mu.Unlock()
}

// digits lists the digits of the newest result, from left to right: "3 7 7".
func (e *evaluation) digits() string {
	e.mu.Lock()
	boxes := slices.Clone(e.newest)
	e.mu.Unlock()
	if len(boxes) == 0 {
		return "none"
	}
	slices.SortFunc(boxes, func(a, b overlay.Box) int { return cmp.Compare(a.X1, b.X1) })
	var names []string
	for _, b := range boxes {
		names = append(names, strconv.Itoa(b.Number))
	}
	return strings.Join(names, " ")
}
