package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
)

const fixtures = "../../../../shared/fixtures/ultraface"

// detector is docs/onnx.md's configuration of a face detector, and the same with
// the picture's form kept, with tensors for answers, and with tensors only.
const detector = `
models:
  - name: faces
    source: DIR/version-RFB-320.onnx
    input: {image: {mean: 127, std: 128}}
    output: {boxes: {units: normalised, background: true, threshold: 0.7}}
  - name: letterbox
    source: DIR/version-RFB-320.onnx
    input: {image: {mean: 127, std: 128, fit: letterbox}}
    output: {boxes: {units: normalised, background: true, threshold: 0.7}}
  - name: raw
    source: DIR/version-RFB-320.onnx
    input: {image: {mean: 127, std: 128}}
  - name: tensors
    source: DIR/version-RFB-320.onnx
`

// prepared is a picture prepared as by the detector's authors: stretched, with the mean of the covered pixels for
// each pixel, minus 127, divided by 128.
func prepared(img image.Image) stream.Tensor {
	const width, height = 320, 240
	b := img.Bounds()
	planes := make([]float32, 3*height*width)
	for y := range height {
		for x := range width {
			var sum [3]float64
			n := 0
			for v := b.Dy() * y / height; v < max(b.Dy()*(y+1)/height, b.Dy()*y/height+1); v++ {
				for u := b.Dx() * x / width; u < max(b.Dx()*(x+1)/width, b.Dx()*x/width+1); u++ {
					red, green, blue, _ := img.At(b.Min.X+u, b.Min.Y+v).RGBA()
					for k, c := range [3]uint32{red, green, blue} {
						sum[k] += float64(c) / 257
					}
					n++
				}
			}
			for k := range sum {
				planes[(k*height+y)*width+x] = float32((sum[k]/float64(n) - 127) / 128)
			}
		}
	}
	return stream.Tensor{Name: "input", Datatype: stream.Float32, Shape: []int{1, 3, height, width},
		Data: stream.AppendFloat32(nil, planes...)}
}

// rect is x1 y1 x2 y2 in pixels.
type rect [4]float64

func area(r rect) float64 { return max(r[2]-r[0], 0) * max(r[3]-r[1], 0) }

func iou(a, b rect) float64 {
	both := area(rect{max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])})
	if both == 0 {
		return 0
	}
	return both / (area(a) + area(b) - both)
}

// found counts the boxes of a with a match in b, each box of b once.
func found(a, b []rect, least float64) int {
	b, n := slices.Clone(b), 0
	for _, r := range a {
		for i := range b {
			if iou(r, b[i]) >= least {
				b, n = slices.Delete(b, i, i+1), n+1
				break
			}
		}
	}
	return n
}

// reference computes faces from the detector's tensors in the simplest way: the best first, without faces that cover
// half of a better face.
func reference(scores, boxes []float32, width, height int) (faces []rect) {
	type candidate struct {
		score float32
		rect
	}
	var all []candidate
	for i := range len(scores) / 2 {
		if scores[2*i+1] > 0.7 {
			var r rect
			for k := range r {
				side := float64([]int{width, height}[k%2])
				r[k] = min(max(float64(boxes[4*i+k])*side, 0), side)
			}
			all = append(all, candidate{scores[2*i+1], r})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return int(math.Copysign(1, float64(b.score-a.score))) })
	for _, c := range all {
		if !slices.ContainsFunc(faces, func(f rect) bool { return iou(c.rect, f) > 0.5 }) {
			faces = append(faces, c.rect)
		}
	}
	return faces
}

// rects reads the boxes of a result.
func rects(flat []float32) (out []rect) {
	for ; len(flat) >= 4; flat = flat[4:] {
		out = append(out, rect{float64(flat[0]), float64(flat[1]), float64(flat[2]), float64(flat[3])})
	}
	return out
}

// boxesOf reads the boxes of a JSON reply of REST or WebSocket.
func boxesOf(t *testing.T, reply []byte) []rect {
	t.Helper()
	var r struct {
		Error   any
		Outputs []struct {
			Name string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal(reply, &r); err != nil || r.Error != nil {
		t.Fatalf("%v: %.300s", err, reply)
	}
	for _, o := range r.Outputs {
		if o.Name == "boxes" {
			var flat []float32
			if err := json.Unmarshal(o.Data, &flat); err != nil {
				t.Fatal(err)
			}
			return rects(flat)
		}
	}
	t.Fatalf("no boxes: %.300s", reply)
	return nil
}

func nativeFloats(t *testing.T, s *server.Server, model string, picture []byte) map[string][]float32 {
	t.Helper()
	r, err := s.Native().InferBytes(context.Background(), model, stream.JPEG, picture)
	if err != nil {
		t.Fatal(err)
	}
	return floatsOf(r)
}

func floatsOf(r *stream.Result) map[string][]float32 {
	defer r.Release()
	out := map[string][]float32{}
	for _, o := range r.Outputs {
		if o.Datatype == stream.Float32 {
			out[o.Name] = slices.Clone(o.Float32s())
		}
	}
	return out
}

// The face detector returns the same result by REST, WebSocket and the Go API: the result of a simple reading of its
// tensors.
func TestFacesOnEveryPath(t *testing.T) {
	pictures, _ := filepath.Glob(fixtures + "/*.jpg")
	if len(pictures) == 0 {
		t.Skipf("no face detector and pictures in %s", fixtures)
	}
	dir, err := filepath.Abs(fixtures)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse([]byte(strings.ReplaceAll(detector, "DIR", dir)), "faces.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, cfg.Models...)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	c := servertest.Dial(t, s, "/v2/models/faces/stream?policy=every")
	defer c.Close()
	all, same := 0, 0   // of plain tensors
	total, kept := 0, 0 // of stretched pictures, and of letterboxed pictures
	for _, path := range pictures {
		picture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		img, _, err := image.Decode(bytes.NewReader(picture))
		if err != nil {
			t.Fatal(err)
		}
		size := img.Bounds().Size()
		r, err := s.Native().Infer(context.Background(), "tensors", []stream.Tensor{prepared(img)})
		if err != nil {
			t.Fatal(err)
		}
		plain := floatsOf(r)
		theirs := reference(plain["scores"], plain["boxes"], size.X, size.Y)
		raw := nativeFloats(t, s, "raw", picture)
		want := reference(raw["scores"], raw["boxes"], size.X, size.Y)
		if len(want) == 0 {
			t.Errorf("%s: no faces", path)
		}
		code, reply := post(t, s, "faces", picture)
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, reply)
		}
		letterbox := rects(nativeFloats(t, s, "letterbox", picture)["boxes"])
		again := found(want, letterbox, 0.6)
		all, same = all+len(theirs), same+found(theirs, want, 0.8)
		t.Logf("%s %dx%d: %d faces, as a plain tensor %d, letterboxed %d, of which %d the same", filepath.Base(path),
			size.X, size.Y, len(want), len(theirs), len(letterbox), again)
		total, kept = total+len(want), kept+again
		for by, got := range map[string][]rect{
			"REST":      boxesOf(t, reply),
			"WebSocket": boxesOf(t, []byte(servertest.Ask(t, c, websocket.BinaryMessage, picture))),
			"Go":        rects(nativeFloats(t, s, "faces", picture)["boxes"]),
		} {
			if len(got) != len(want) || found(want, got, 0.95) != len(want) {
				t.Errorf("%s by %s: %v\nwant %v", filepath.Base(path), by, got, want)
			}
		}
	}
	if 10*same < 9*all || 10*all < 9*total {
		t.Errorf("%d of the %d faces that plain tensors have, and %d in all", same, all, total)
	}
	if 4*kept < 3*total {
		t.Errorf("letterboxed pictures have %d of %d faces", kept, total)
	}
}

func post(t *testing.T, s *server.Server, model string, picture []byte) (int, []byte) {
	t.Helper()
	r, err := http.Post("http://"+s.Addr("http")+"/v2/models/"+model+"/infer", "image/jpeg", bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, b.Bytes()
}

// A configuration that does not fit its model fails the start, and the error describes the model.
func TestConfigurationsThatDoNotFitTheModel(t *testing.T) {
	dir := t.TempDir()
	for name, model := range map[string][]byte{"mlp": onnxfile.MLP(4, 8, 3, 2), "cnn": onnxfile.CNN(64, 48)} {
		if err := os.WriteFile(filepath.Join(dir, name+".onnx"), model, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, model string
		want        []string
	}{
		{"a picture for an MLP", "source: DIR/mlp.onnx\n    input: image",
			[]string{"input.image", "input x of model m has the shape [4]", "is not a picture"}},
		{"boxes of an MLP", "source: DIR/mlp.onnx\n    output: boxes", []string{"output.boxes", "y FP32 [3]"}},
		{"boxes of a name that is not there", "source: DIR/mlp.onnx\n    output: {boxes: {boxes: corners}}",
			[]string{"output.boxes.boxes", "corners", "y FP32 [3]"}},
		{"labels that are missing", "source: DIR/cnn.onnx\n    input: image\n    output: {labels: DIR/labels.txt, " +
			"classify: {}}", []string{"output.labels", "labels.txt", "no such file"}},
		{"fewer labels than classes", "source: DIR/cnn.onnx\n    input: image\n    output: {labels: DIR/two.txt, " +
			"classify: {}}", []string{"output.labels", "two.txt", "2", "10"}},
		{"another width than the model's", "source: DIR/cnn.onnx\n    input: {image: {width: 640}}",
			[]string{"input.image.width", "640", "64"}},
		{"a parameter that is none", "source: DIR/mlp.onnx\n    gpu: true", []string{"gpu", "provider"}},
		{"a provider that is none", "source: DIR/mlp.onnx\n    provider: tpu", []string{"provider", "tpu", "cuda"}},
		{"a file that is missing", "source: DIR/none.onnx", []string{"source", "none.onnx", "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "two.txt"), []byte("cat\ndog\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(fmt.Sprintf("http: 127.0.0.1:0\ngrpc: off\nmodels:\n  - name: m\n    %s\n",
				c.model), "DIR", dir)
			cfg, err := config.Parse([]byte(text), "millrace.yaml")
			var s *server.Server
			if err == nil {
				if s, err = server.New(cfg); err == nil {
					err = s.Run(context.Background())
				}
			}
			if err == nil {
				t.Fatal("it ran")
			}
			t.Log(err)
			for _, w := range append(c.want, "models[0]") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}
