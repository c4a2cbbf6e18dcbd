package streams_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
)

// rectangle is a worker kind that finds the edges of the bright part of a picture, in pixels of the source.
type rectangle struct {
	workers.Base
	image stream.ImageSpec
}

func init() {
	workers.Register(workers.Kind{Name: "rectangle", New: func() workers.Worker { return &rectangle{} }})
}

// rectangles are the models, by name.
var rectangles = map[string]stream.ImageSpec{
	"stretched": {Width: 160, Height: 128, Fit: "stretch"},
	"fitted":    {Width: 128, Height: 128, Fit: "letterbox"},
	"odd":       {Width: 77, Height: 133, Fit: "letterbox"},
	"large":     {Width: 1301, Height: 301, Fit: "stretch"},
}

func (w *rectangle) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.image = rectangles[env.Name]
	w.image.Color, w.image.Layout = "GRAY", "NHWC"
	return &stream.Model{MaxBatch: 4, Image: &w.image,
		Inputs: []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8,
			Shape: []int{w.image.Height, w.image.Width, 1}}},
		Outputs: []stream.TensorSpec{{Name: "edges", Datatype: stream.Float32, Shape: []int{4}}}}, nil
}

func (w *rectangle) Run(_ context.Context, b *batching.Batch) error {
	var data []byte
	for row, r := range b.Requests {
		e := edges(b.Row(0, row), w.image.Width)
		for i, along := range [][2]float64{r.MapX, r.MapY, r.MapX, r.MapY} {
			data = stream.AppendFloat32(data, float32(e[i]*along[0]+along[1]))
		}
	}
	b.Outputs = []stream.Tensor{{Name: "edges", Datatype: stream.Float32, Shape: []int{b.Rows, 4}, Data: data}}
	return nil
}

// edges returns the left, top, right and bottom edge of the bright part of a gray picture.
func edges(gray []byte, width int) [4]float64 {
	e := [4]float64{math.Inf(1), math.Inf(1)}
	for i, v := range gray {
		if x, y := float64(i%width), float64(i/width); v > 128 {
			e = [4]float64{min(e[0], x), min(e[1], y), max(e[2], x+1), max(e[3], y+1)}
		}
	}
	return e
}

// Corners of boxes are in pixels of the source's picture: at every ratio of sizes; for odd, turned and interlaced
// pictures; for models that stretch a picture, keep its shape or are larger; and while watchers make the server read
// whole pictures.
func TestCornersOfResults(t *testing.T) {
	if testing.Short() {
		t.Skip("reads videos in real time")
	}
	dir := t.TempDir()
	video := func(name, size string, args ...string) string {
		path := filepath.Join(dir, name+".mp4")
		all := append([]string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", "color=black:rate=25:duration=2:size=" +
			size + ",format=yuv444p",
			"-vf", "drawbox=x=iw/5:y=ih/7:w=iw*2/3:h=ih/2:color=white:t=fill", "-pix_fmt", "yuv444p", "-c:v",
			"libx264", "-preset", "ultrafast"}, args...)
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), append(all, path)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return path
	}
	turned := func(name, by string) string {
		path := filepath.Join(dir, name+".mp4")
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-i",
			filepath.Join(dir, "odd.mp4"), "-c", "copy", "-metadata:s:v", "rotate="+by,
			path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return path
	}
	videos := []struct {
		name, path    string
		width, height int
	}{
		{"odd", video("odd", "321x241"), 321, 241},
		{"even", video("even", "640x360", "-pix_fmt", "yuv420p"), 640, 360},
		{"small", video("small", "64x48"), 64, 48}, // than any model
		{"wide", video("wide", "1001x41"), 1001, 41},
		{"interlaced", video("interlaced", "320x240", "-pix_fmt", "yuv420p", "-flags", "+ildct+ilme", "-x264opts",
			"tff=1"), 320, 240},
		{"right", turned("right", "90"), 241, 321},
		{"over", turned("over", "180"), 321, 241},
		{"left", turned("left", "270"), 241, 321},
	}
	r := start(t, streams.Options{})
	for name := range rectangles {
		r.load(workers.Config{Name: name, Kind: "rectangle"})
	}
	for _, models := range [][]string{{"stretched", "fitted", "odd"}, {"large", "fitted"}} {
		for _, v := range videos {
			if models[0] == "large" && v.name != "odd" && v.name != "left" {
				continue // whole pictures are read
			}
			c := streams.Config{Name: v.name + "-" + models[0], Source: v.path, Loop: true}
			c.Sinks = []sinks.Settings{&sinks.File{Path: filepath.Join(dir, c.Name)}}
			for _, name := range models {
				c.Models = append(c.Models, streams.ModelConfig{Model: name})
			}
			r.streams.Add(t, c)
			t.Run(c.Name, func(t *testing.T) {
				r := *r
				r.t = t
				r.corners(c, v.width, v.height)
			})
		}
	}
}

// corners checks the results of a stream before, during and after a watch.
func (r *rig) corners(c streams.Config, width, height int) {
	t, path := r.t, "/v2/streams/"+c.Name
	more := func(what string) {
		before := r.show(c.Name)
		r.until(c.Name, what, func(s shown) bool {
			for i, m := range s.Models {
				if m.Results < before.Models[i].Results+3 {
					return false
				}
			}
			return true
		})
	}
	more("results")
	resp, err := http.Get(r.url + path + "/video")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, 5000); err != nil { // of several pictures
		t.Error(err)
	}
	more("results while it is watched")
	_ = resp.Body.Close()
	r.until(c.Name, "nobody watches", func(s shown) bool { return s.Watchers == 0 })
	more("results after that")
	r.want(204, "DELETE", path, "")

	gray, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-i", c.Source, "-frames:v",
		"1", "-f", "rawvideo", "-pix_fmt", "gray", "-").Output()
	if err != nil || len(gray) != width*height {
		t.Fatalf("%d bytes, %v", len(gray), err)
	}
	want := edges(gray, width)
	file, err := os.Open(c.Sinks[0].(*sinks.File).Path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var l struct {
			Model         string
			Width, Height int
			Outputs       []struct{ Data []float64 }
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil || len(l.Outputs) != 1 ||
			len(l.Outputs[0].Data) != 4 || l.Width != width || l.Height != height {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		seen[l.Model]++
		m := rectangles[l.Model]
		// of the model, in pixels of the source
		pixel := [2]float64{float64(width) / float64(m.Width), float64(height) / float64(m.Height)}
		if m.Fit == "letterbox" {
			pixel[0] = max(pixel[0], pixel[1])
			pixel[1] = pixel[0]
		}
		for i, got := range l.Outputs[0].Data {
			if d := math.Abs(got - want[i]); d > 1+max(pixel[i%2], 1) {
				t.Fatalf("%s: %v, want %v: the %s edge", l.Model, l.Outputs[0].Data, want,
					strings.Fields("left top right bottom")[i])
			}
		}
	}
	if len(seen) != len(c.Models) {
		t.Errorf("results: %v", seen)
	}
}
