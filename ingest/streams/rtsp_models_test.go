package streams_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/batching"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
	"millrace/stream"
	"millrace/workers"
)

// framed is a worker kind that finds one box in each picture. If the model's name is crash, framed panics at each
// third picture.
type framed struct {
	workers.Base
	name string
}

func init() {
	workers.Register(workers.Kind{Name: "framed", New: func() workers.Worker { return &framed{} }})
}

// boxesOf are the boxes found by each model, in pixels of a source of 320x240.
var boxesOf = map[string][4]float32{"left": {20, 40, 100, 200}, "right": {220, 40, 300, 200}}

func (w *framed) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.name = env.Name
	return &stream.Model{MaxBatch: 1, Image: &stream.ImageSpec{Width: 64, Height: 48, Color: "GRAY", Layout: "NHWC"},
		Inputs:  []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{48, 64, 1}}},
		Outputs: []stream.TensorSpec{{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, 4}}}}, nil
}

func (w *framed) Run(_ context.Context, b *batching.Batch) error {
	if w.name == "crash" && b.Requests[0].Seq%3 == 0 {
		panic("as the test wants")
	}
	var data []byte
	for _, v := range boxesOf[w.name] {
		data = stream.AppendFloat32(data, v)
	}
	b.Outputs = []stream.Tensor{{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, 1, 4}, Data: data}}
	return nil
}

// pictured reads pictures of the stream door until a picture shows exactly the boxes of models.
func (r *rig) pictured(query string, models ...string) {
	r.t.Helper()
	resp, err := http.Get(r.url + "/v2/streams/door/video" + query)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		r.t.Fatal(err)
	}
	parts := multipart.NewReader(resp.Body, params["boundary"])
	var last string
	for range 200 {
		part, err := parts.NextPart()
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(part)
		if err != nil {
			r.t.Fatal(err)
		}
		picture, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil || picture.Bounds() != image.Rect(0, 0, 320, 240) {
			r.t.Fatalf("%v, %v", picture, err)
		}
		drawn := map[string]bool{}
		for name, box := range boxesOf {
			for x := int(box[0]) - 3; x <= int(box[0])+3; x++ { // the picture itself is gray
				red, green, blue, _ := picture.At(x, 120).RGBA()
				drawn[name] = drawn[name] || max(red, green, blue)-min(red, green, blue) > 60<<8
			}
		}
		want := map[string]bool{"left": false, "right": false}
		for _, m := range models {
			want[m] = true
		}
		if last = fmt.Sprint(drawn); last == fmt.Sprint(want) {
			return
		}
	}
	r.t.Errorf("%s: drawn %s, want %v", query, last, models)
}

// Of the models on a camera one model panics now and then, and one model is unloaded. The other models go on with the
// same connection, every frame counts once for each model, each line names its model, and pictures show the boxes of
// the answering models.
func TestModelsOfACamera(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a camera")
	}
	dir := t.TempDir()
	gray := filepath.Join(dir, "gray.mp4")
	if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"color=gray:size=320x240:rate=25:duration=10", "-c:v", "libx264", "-preset", "ultrafast",
		"-pix_fmt", "yuv420p", "-x264-params", "keyint=10:min-keyint=10:scenecut=0:open-gop=0:bframes=0",
		gray).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	camera := videotest.RunCamera(t, gray)
	lines := filepath.Join(dir, "lines")
	r := start(t, streams.Options{})
	names := []string{"left", "right", "crash", "gone"}
	for _, name := range names {
		// crash may panic at many frames in a row
		r.load(workers.Config{Name: name, Kind: "framed", Limits: workers.Limits{Restarts: 1 << 30}})
	}
	c := streams.Config{Name: "door", Source: "rtsp://" + camera.Addr,
		Sinks: []sinks.Settings{&sinks.File{Path: lines}}}
	for _, name := range names {
		c.Models = append(c.Models, streams.ModelConfig{Model: name})
	}
	r.streams.Add(t, c)
	more := func(what string, models ...int) shown {
		before := r.show("door")
		return r.until("door", what, func(s shown) bool {
			for _, i := range models {
				if s.Models[i].Results < before.Models[i].Results+5 {
					return false
				}
			}
			return true
		})
	}
	more("all answer", 0, 1, 2, 3)
	r.pictured("", "left", "right")
	r.pictured("?model=left", "left")
	if err := r.models.Unload(t.Context(), "gone", ""); err != nil {
		t.Fatal(err)
	}
	r.until("door", "one is gone", func(s shown) bool { return s.Models[3].State == "waiting" })
	// a frame may be dropped as closed after the state has become waiting
	gone := more("the others go on", 0, 1, 2).Models[3].endings()
	r.pictured("?model=right", "right")
	s := more("the others still go on", 0, 1, 2)
	if s.State != "running" || s.Restarts != 0 || s.Models[3].endings() != gone || s.Models[2].Errors == 0 ||
		s.Models[0].Errors+s.Models[1].Errors != 0 {
		t.Errorf("%+v", s)
	}
	r.load(workers.Config{Name: "gone", Kind: "framed"})
	more("all answer again", 0, 1, 2, 3)
	if n := camera.Clients(); n != 1 {
		t.Errorf("%d connections", n)
	}
	camera.Stop()
	s = r.until("door", "every frame has ended", func(s shown) bool {
		for _, m := range s.Models[:3] {
			if m.endings() != s.Frames {
				return false
			}
		}
		return s.State == "waiting" && s.Models[3].endings() < s.Frames
	})
	told := map[string]uint64{}
	r.until("door", "every line is written", func(s shown) bool {
		file, err := os.Open(lines)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		clear(told)
		for in := bufio.NewScanner(file); in.Scan(); {
			var l struct {
				Model string
				Error *struct{ Code string }
			}
			if json.Unmarshal(in.Bytes(), &l) != nil {
				return false // the last line is being written
			}
			// code of the frames in flight at the unload
			code := map[string]string{"crash": "internal", "gone": "unloaded"}[l.Model]
			if l.Error != nil && l.Error.Code != code {
				t.Fatalf("%s", in.Bytes())
			}
			told[l.Model]++
		}
		for _, m := range s.Models {
			if told[m.Model] != m.Results+m.Errors {
				return false
			}
		}
		return len(told) == len(names)
	})
}
