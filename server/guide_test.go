package server_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/server"
)

// constant is a model that answers the same for every picture: outputs by name,
// each with its shape without the batch axis. Width and height are free.
func constant(outputs map[string][]int, values map[string][]float32) []byte {
	ints := func(name string, v ...int64) onnxfile.Tensor {
		var raw []byte
		for _, n := range v {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
		}
		return onnxfile.Tensor{Name: name, Type: onnxfile.Int64, Dims: []int64{int64(len(v))}, Raw: raw}
	}
	floats := func(name string, dims []int64, v []float32) onnxfile.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		raw := make([]byte, 4*n)
		for i, f := range v {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(f))
		}
		return onnxfile.Tensor{Name: name, Type: onnxfile.Float32, Dims: dims, Raw: raw}
	}
	m := onnxfile.Model{
		Opset:  17,
		Inputs: []onnxfile.Value{{Name: "images", Type: onnxfile.Float32, Dims: []any{"N", int64(3), "H", "W"}}},
		Nodes: []onnxfile.Node{
			{Op: "GlobalAveragePool", Inputs: []string{"images"}, Outputs: []string{"mean"}},
			{Op: "ReduceMean", Inputs: []string{"mean"}, Outputs: []string{"one"}, Attrs: []onnxfile.Attr{{Name: "axes", Value: []int64{1, 2, 3}}, {Name: "keepdims", Value: int64(1)}}},
			{Op: "Mul", Inputs: []string{"one", "nothing"}, Outputs: []string{"zero"}},
		},
		Initializers: []onnxfile.Tensor{floats("nothing", []int64{1}, nil)},
	}
	for name, shape := range outputs {
		dims, flat, out := []int64{1}, []int64{-1}, []any{"N"}
		for _, d := range shape {
			dims, flat, out = append(dims, int64(d)), append(flat, 1), append(out, int64(d))
		}
		m.Initializers = append(m.Initializers, floats(name+".values", dims, values[name]), ints(name+".shape", flat...))
		m.Nodes = append(m.Nodes,
			onnxfile.Node{Op: "Reshape", Inputs: []string{"zero", name + ".shape"}, Outputs: []string{name + ".zero"}},
			onnxfile.Node{Op: "Add", Inputs: []string{name + ".zero", name + ".values"}, Outputs: []string{name}})
		m.Outputs = append(m.Outputs, onnxfile.Value{Name: name, Type: onnxfile.Float32, Dims: out})
	}
	return m.Bytes()
}

func at(n int, pairs map[int]float32) []float32 {
	v := make([]float32, n)
	for i, f := range pairs {
		v[i] = f
	}
	return v
}

// voice has the form of a voice activity detector: windows of 512 samples and two states.
func voice() []byte {
	rows := func(name string, n int64) onnxfile.Value {
		return onnxfile.Value{Name: name, Type: onnxfile.Float32, Dims: []any{"N", n}}
	}
	mean := []onnxfile.Attr{{Name: "axes", Value: []int64{1}}, {Name: "keepdims", Value: int64(1)}}
	m := onnxfile.Model{
		Opset:   17,
		Inputs:  []onnxfile.Value{rows("samples", 512), rows("h", 1), rows("c", 1)},
		Outputs: []onnxfile.Value{rows("speech", 1), rows("h_out", 1), rows("c_out", 1)},
		Nodes: []onnxfile.Node{
			{Op: "ReduceMean", Inputs: []string{"samples"}, Outputs: []string{"mean"}, Attrs: mean},
			{Op: "Add", Inputs: []string{"h", "mean"}, Outputs: []string{"h_out"}},
			{Op: "Add", Inputs: []string{"c", "h"}, Outputs: []string{"c_out"}},
			{Op: "Add", Inputs: []string{"mean", "c_out"}, Outputs: []string{"speech"}},
		},
	}
	return m.Bytes()
}

// The examples of docs/onnx.md work as printed there, on models of the form that each
// describes.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../docs/onnx.md")
	if err != nil {
		t.Fatal(err)
	}
	const anchors = 8400
	files := map[string][]byte{
		"mobilenet.onnx": constant(map[string][]int{"logits": {1000}}, map[string][]float32{"logits": at(1000, map[int]float32{7: 20})}),
		"yolov8n.onnx": constant(map[string][]int{"output0": {84, anchors}}, map[string][]float32{"output0": at(84*anchors, map[int]float32{
			5: 320, anchors + 5: 320, 2*anchors + 5: 64, 3*anchors + 5: 64, (4+7)*anchors + 5: 0.9})}),
		"version-RFB-320.onnx": constant(map[string][]int{"scores": {10, 2}, "boxes": {10, 4}}, map[string][]float32{
			"scores": at(20, map[int]float32{7: 0.9}), "boxes": at(40, map[int]float32{12: 0.25, 13: 0.25, 14: 0.5, 15: 0.5})}),
		"vad.onnx":     voice(),
		"imagenet.txt": lines(1000), "coco.txt": lines(80),
	}
	dir := t.TempDir()
	text := string(page)
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, " "+name, " "+path)
	}
	want := map[string]string{
		"what":  `"classes" \[1 3\].*"labels" \[1 3\] \["thing 7"`,
		"yolo":  `"boxes" \[1 1 4\] \[316.8,108.8\d*,387.2,179.1\d*\].*"classes" \[1 1\] \[7\].*"labels" \[1 1\] \["thing 7"\]`,
		"faces": `"boxes" \[1 1 4\] \[176,72,352,144\]`,
		"voice": `^"speech" \[1 1\] \[0.5\] $`,
	}
	for _, block := range regexp.MustCompile(`(?m)^    models:\n(?:    .*\n)+`).FindAllString(text, -1) {
		cfg, err := config.Parse([]byte(strings.ReplaceAll("\n"+block, "\n    ", "\n")), "guide.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, block)
		}
		m := cfg.Models[0]
		t.Run(m.Name, func(t *testing.T) {
			var picture bytes.Buffer
			if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 704, 288)), nil); err != nil {
				t.Fatal(err)
			}
			body, media := picture.Bytes(), "image/jpeg"
			if m.Name == "voice" {
				body, media = bytes.Repeat([]byte{0, 0, 0, 0x3f}, 512), "application/octet-stream" // 512 times 0.5
			} else if m.Name != "what" && m.Image.Width == 0 { // these files leave the size free
				m.Image.Width, m.Image.Height = 640, 640
			} else if m.Image.Width == 0 {
				m.Image.Width, m.Image.Height = 224, 224
			}
			s, stop := run(t, m)
			got := infer(t, s, m.Name, media, body)
			if !regexp.MustCompile(want[m.Name]).MatchString(got) {
				t.Errorf("got %s\nwant %s", got, want[m.Name])
			}
			delete(want, m.Name)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if len(want) > 0 {
		t.Errorf("the guide has nothing of %v", want)
	}
}

func lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "thing %d\n", i)
	}
	return b.Bytes()
}

// infer posts a body and returns name, shape and data of each output.
func infer(t *testing.T, s *server.Server, model, media string, body []byte) string {
	t.Helper()
	r, err := http.Post("http://"+s.Addr("http")+"/v2/models/"+model+"/infer?outputs=json", media, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var reply struct {
		Error   any
		Outputs []struct {
			Name  string
			Shape []int
			Data  json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&reply); err != nil || reply.Error != nil {
		t.Fatalf("%d %v %v", r.StatusCode, err, reply.Error)
	}
	var b strings.Builder
	for _, o := range reply.Outputs {
		fmt.Fprintf(&b, "%q %v %s ", o.Name, o.Shape, o.Data)
	}
	return b.String()
}
