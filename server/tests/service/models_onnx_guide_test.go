package service_test

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
	"millrace/internal/servertest"
	"millrace/server"
)

// constant returns the file of onnxfile.Constant.
func constant(outputs map[string][]int, values map[string][]float32, metadata ...string) []byte {
	m := onnxfile.Constant(outputs, values, metadata...)
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

// The examples of docs/onnx.md work as printed, on models of the described form.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/onnx.md")
	if err != nil {
		t.Fatal(err)
	}
	const anchors = 8400
	files := map[string][]byte{
		"mobilenet.onnx": constant(map[string][]int{"logits": {1000}},
			map[string][]float32{"logits": at(1000, map[int]float32{7: 20})}),
		"yolov8n.onnx": constant(map[string][]int{"output0": {84, anchors}},
			map[string][]float32{"output0": at(84*anchors, map[int]float32{
				5: 320, anchors + 5: 320, 2*anchors + 5: 64, 3*anchors + 5: 64, (4+7)*anchors + 5: 0.9})}),
		"yolov5s.onnx": constant(map[string][]int{"output0": {25200, 85}},
			map[string][]float32{"output0": at(25200*85, map[int]float32{
				85: 320, 86: 320, 87: 64, 88: 64, 89: 1, 90 + 7: 0.9})}, "stride", "32", "names", things(80)),
		"yolo26n.onnx": constant(map[string][]int{"output0": {300, 6}},
			map[string][]float32{"output0": at(300*6, map[int]float32{
				0: 288, 1: 288, 2: 352, 3: 352, 4: 0.9, 5: 7})}, "task", "detect", "end2end", "True", "names",
			things(80)),
		"yolov10n.onnx": constant(map[string][]int{"output0": {300, 6}},
			map[string][]float32{"output0": at(300*6, map[int]float32{
				0: 288, 1: 288, 2: 352, 3: 352, 4: 0.9, 5: 7})}),
		"yolov8n-seg.onnx": constant(map[string][]int{"output0": {116, anchors}, "output1": {32, 160, 160}},
			map[string][]float32{"output0": at(116*anchors, map[int]float32{
				5: 320, anchors + 5: 320, 2*anchors + 5: 64, 3*anchors + 5: 64, (4+7)*anchors + 5: 0.9}),
				"output1": make([]float32, 32*160*160)},
			"task", "segment", "names", things(80)),
		"yolov8n-pose.onnx": constant(map[string][]int{"output0": {56, anchors}},
			map[string][]float32{"output0": at(56*anchors, map[int]float32{
				5: 320, anchors + 5: 320, 2*anchors + 5: 64, 3*anchors + 5: 64, 4*anchors + 5: 0.9, 5*anchors + 5: 320,
				6*anchors + 5: 320, 7*anchors + 5: 0.8})},
			"task", "pose", "kpt_shape", "[17, 3]", "names", "{0: 'person'}"),
		"yolov8n-obb.onnx": constant(map[string][]int{"output0": {20, anchors}},
			map[string][]float32{"output0": at(20*anchors, map[int]float32{
				5: 320, anchors + 5: 320, 2*anchors + 5: 64, 3*anchors + 5: 64, (4+7)*anchors + 5: 0.9,
				19*anchors + 5: math.Pi / 2})},
			"task", "obb", "names", things(15)),
		"yolov7.onnx": withNMS(),
		"version-RFB-320.onnx": constant(map[string][]int{"scores": {10, 2}, "boxes": {10, 4}}, map[string][]float32{
			"scores": at(20, map[int]float32{7: 0.9}),
			"boxes":  at(40, map[int]float32{12: 0.25, 13: 0.25, 14: 0.5, 15: 0.5})}),
		"vad.onnx":     voice(),
		"theirs.onnx":  voice(),
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
	text = rowsAsBlocks(text, dir)
	const yolo = `"boxes" \[1 1 4\] \[316.8,108.8\d*,387.2,179.1\d*\].*"classes" \[1 1\] \[7\].*"labels" \[1 1\] ` +
		`\["thing 7"\]`
	want := map[string]string{
		"yolov5s": yolo, "yolov10n": yolo, "yolo26n": yolo,
		"yolov8n-seg":  yolo + ` "mask" \[1 160 160\] .* "region" \[1 4\] \[0,-207.7\d*,704,495.7`,
		"yolov8n-pose": `"boxes" \[1 1 4\] \[316.8,108.8.* "keypoints" \[1 1 17 3\] \[352,144,0.8`,
		"yolov8n-obb":  yolo + ` "corners" \[1 1 4 2\] \[387.2`,
		"yolov7":       `"boxes" \[1 1 4\] \[316.8,108.8.*"classes" \[1 1\] \[7\]`,
		"what":         `"classes" \[1 3\].*"labels" \[1 3\] \["thing 7"`,
		"yolo": `"boxes" \[1 1 4\] \[316.8,108.8\d*,387.2,179.1\d*\].*"classes" \[1 1\] \[7\].*"labels" \[1 1\] ` +
			`\["thing 7"\]`,
		"faces": `"boxes" \[1 1 4\] \[176,72,352,144\]`,
		"voice": `^"speech" \[1 1\] \[0.5\] $`,
	}
	for _, block := range regexp.MustCompile(`(?m)^    models:\n(?:    .*\n)+`).FindAllString(text, -1) {
		cfg, err := config.Parse([]byte(strings.ReplaceAll("\n"+block, "\n    ", "\n")), "guide.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, block)
		}
		for _, m := range cfg.Models {
			if m.Name == "theirs" { // needs a program not built here; the tests of workers/onnx run such a program
				continue
			}
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
				s, stop := servertest.Run(t, m)
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
	}
	if len(want) > 0 {
		t.Errorf("the guide has nothing of %v", want)
	}
}

// rowsAsBlocks replaces each row of the table of exports by a configuration, with files in dir.
func rowsAsBlocks(text, dir string) string {
	row := regexp.MustCompile("(?m)^\\| (`\\S+\\.onnx`.*?) \\| .* \\| `(.*output: .*)` \\|\n")
	return row.ReplaceAllStringFunc(text, func(line string) string {
		cells, block := row.FindStringSubmatch(line), ""
		for _, file := range regexp.MustCompile("`(\\S+)\\.onnx`").FindAllStringSubmatch(cells[1], -1) {
			block += fmt.Sprintf("    models:\n      - {name: %s, source: %s, input: {image: {scale: 0.00392157, "+
				"fit: letterbox}}, %s}\n\n", file[1], filepath.Join(dir, file[1]+".onnx"), cells[2])
		}
		return block
	})
}

// things are label lines as exporters write labels.
func things(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d: 'thing %d', ", i, i)
	}
	return "{" + b.String() + "}"
}

// withNMS returns the boxes of the whole batch without a batch axis: each row is picture index, x1 y1 x2 y2, class
// and score. Dark pictures have no boxes.
func withNMS() []byte {
	box := []float32{0, 288, 288, 352, 352, 7, 0.9}
	raw := make([]byte, 0, 28)
	for _, v := range box {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	ints := func(name string, v ...int64) onnxfile.Tensor {
		t := onnxfile.Tensor{Name: name, Type: onnxfile.Int64, Dims: []int64{int64(len(v))}}
		for _, n := range v {
			t.Raw = binary.LittleEndian.AppendUint64(t.Raw, uint64(n))
		}
		return t
	}
	return onnxfile.Model{
		Inputs:  []onnxfile.Value{{Name: "images", Type: onnxfile.Float32, Dims: []any{"batch", 3, 640, 640}}},
		Outputs: []onnxfile.Value{{Name: "output", Type: onnxfile.Float32, Dims: []any{"num_dets", 7}}},
		Nodes: []onnxfile.Node{
			{Op: "ReduceMax", Inputs: []string{"images"}, Outputs: []string{"max"},
				Attrs: []onnxfile.Attr{{Name: "keepdims", Value: int64(0)}}},
			{Op: "Sign", Inputs: []string{"max"}, Outputs: []string{"light"}},
			{Op: "Cast", Inputs: []string{"light"}, Outputs: []string{"n"},
				Attrs: []onnxfile.Attr{{Name: "to", Value: int64(onnxfile.Int64)}}},
			{Op: "Unsqueeze", Inputs: []string{"n", "axis"}, Outputs: []string{"end"}},
			{Op: "Slice", Inputs: []string{"boxes", "zero", "end", "axis"}, Outputs: []string{"output"}},
		},
		Initializers: []onnxfile.Tensor{{Name: "boxes", Type: onnxfile.Float32, Dims: []int64{1, 7}, Raw: raw},
			ints("zero", 0), ints("axis", 0)},
	}.Bytes()
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
	r, err := http.Post("http://"+s.Addr("http")+"/v2/models/"+model+"/infer?outputs=json", media,
		bytes.NewReader(body))
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
