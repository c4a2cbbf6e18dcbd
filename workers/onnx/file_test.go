//go:build cgo

package onnx

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// faces is the face detector of the fixtures.
const faces = "../../../shared/fixtures/ultraface/version-RFB-320.onnx"

func fixture(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(faces); err != nil {
		t.Skipf("no face detector to test with: %v", err)
	}
	return faces
}

// bad loads a model that must not load, and returns the error for the user.
func bad(t *testing.T, path string, params stream.Params) *stream.Error {
	t.Helper()
	r := newRig(t)
	_, err := r.LoadConfig(context.Background(), workers.Config{Name: "m", Kind: "onnx", Source: path, Params: params},
		true)
	if err == nil {
		t.Fatal("it was loaded")
	}
	t.Log(err)
	if n, _ := inUse(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	text := err.Error()
	for _, noise := range []string{".cc", "onnxruntime::", "Status Message", "\n", "ORT_"} {
		if strings.Contains(text, noise) {
			t.Errorf("%q does not help a user", noise)
		}
	}
	if n := len(text) - 2*len(path); n > 350 {
		t.Errorf("the message has %d bytes, which is too long for a user", n)
	}
	return coded(t, err)
}

// external is a model whose weights are in the file weights.bin in the same folder.
func external() []byte {
	m := graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 4)},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", 4)},
		[]onnxfile.Node{node("Add", "x e", "y")})
	// TensorProto: dims (1) 4, data_type (2) FLOAT, name (8) e, external_data (13)
	// location: weights.bin, data_location (14) EXTERNAL.
	entry := []byte("\x0a\x08location\x12\x0bweights.bin")
	tensor := append([]byte("\x08\x04\x10\x01\x42\x01e\x6a"), byte(len(entry)))
	tensor = append(append(tensor, entry...), 0x70, 0x01)
	graph := append([]byte{0x2a, byte(len(tensor))}, tensor...)
	// Messages of the same field are merged: a second graph adds to the first.
	more := append([]byte{0x3a, byte(len(graph))}, graph...)
	return append(m, more...)
}

func TestFilesThatAreNotModels(t *testing.T) {
	mlp := onnxfile.MLP(4, 4, 2, 2)
	x, y := value("x", onnxfile.Float32, "N", 4), value("y", onnxfile.Float32, "N", 4)
	identity := func(op string) []byte {
		return graph([]onnxfile.Value{x}, []onnxfile.Value{y}, []onnxfile.Node{node(op, "x", "y")})
	}
	future := onnxfile.Model{Opset: 999, Inputs: []onnxfile.Value{x}, Outputs: []onnxfile.Value{y},
		Nodes: []onnxfile.Node{node("Identity", "x", "y")}}
	newer := future
	newer.Opset, newer.IR = 0, 99
	domain := onnxfile.Model{Domain: "com.example", Inputs: future.Inputs, Outputs: future.Outputs,
		Nodes: []onnxfile.Node{{Op: "Special", Domain: "com.example", Inputs: []string{"x"}, Outputs: []string{"y"}}}}
	type file struct {
		name  string
		model []byte
		code  stream.Code
		want  string
	}
	files := []file{
		{"garbage", []byte(strings.Repeat("no model at all ", 100)), stream.InvalidArgument, "not an ONNX model"},
		{"a picture", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"), stream.InvalidArgument, "not an ONNX model"},
		{"empty", nil, stream.InvalidArgument, "is empty"},
		{"opset 999", future.Bytes(), stream.Unsupported, "older opset"},
		{"a newer format", newer.Bytes(), stream.Unsupported, "IR version"},
		{"an unknown operator", identity("NoSuchOp"), stream.Unsupported, "NoSuchOp"},
		{"an operator of somebody's own", domain.Bytes(), stream.Unsupported, "Special"},
		{"weights that are missing", external(), stream.InvalidArgument, "weights.bin"},
		{"no outputs", graph([]onnxfile.Value{x}, nil, []onnxfile.Node{node("Identity", "x", "y")}),
			stream.Unsupported, "0 outputs"},
		{"no inputs", graph(nil, []onnxfile.Value{value("y", onnxfile.Int64, 1)},
			[]onnxfile.Node{node("Identity", "c", "y")}, ints("c", 7)), stream.Unsupported, "0 inputs"},
		{"a value from nowhere", graph([]onnxfile.Value{x}, []onnxfile.Value{y},
			[]onnxfile.Node{node("Add", "x nowhere", "y")}), stream.InvalidArgument, "nowhere"},
		{"a string without dimensions", graph([]onnxfile.Value{value("text", onnxfile.String)},
			[]onnxfile.Value{value("y", onnxfile.String)},
			[]onnxfile.Node{node("Identity", "text", "y")}), stream.Unsupported,
			"input text of the model is a string without dimensions"},
		{"complex numbers", onnxfile.Identity(onnxfile.Complex64, "N", 2), stream.Unsupported, "x"},
		{"another type than declared", graph([]onnxfile.Value{x}, []onnxfile.Value{value("y", onnxfile.Int64, "N", 4)},
			[]onnxfile.Node{node("Identity", "x", "y")}), stream.InvalidArgument, "y"},
	}
	for _, n := range []int{1, 2, 10, len(mlp) / 4, len(mlp) / 2, len(mlp) - 1} {
		files = append(files, file{fmt.Sprintf("cut after %d bytes of %d", n, len(mlp)), mlp[:n],
			stream.InvalidArgument, "truncated"})
	}
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			path := write(t, f.model)
			err := bad(t, path, nil)
			if err.Field != "source" || err.Code != f.code || !strings.Contains(err.Msg, f.want) {
				t.Errorf("%s of %q: %s\nwant %s of source, with %q", err.Code, err.Field, err.Msg, f.code, f.want)
			}
		})
	}
}

func TestTruncatedModel(t *testing.T) {
	whole, err := os.ReadFile(fixture(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{len(whole) / 2, len(whole) - 1} {
		if err := bad(t, write(t, whole[:n]), nil); err.Field != "source" || !strings.Contains(err.Msg, "truncated") {
			t.Errorf("%q: %s", err.Field, err.Msg)
		}
	}
}

func TestMissingAndEmptyFiles(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.onnx")
	if err := bad(t, missing, nil); err.Field != "source" || err.Code != stream.NotFound ||
		!strings.Contains(err.Msg, missing) {
		t.Errorf("%s of %q: %s", err.Code, err.Field, err.Msg)
	}
	if err := bad(t, dir, nil); err.Field != "source" || err.Code != stream.InvalidArgument ||
		!strings.Contains(err.Msg, "not a file") {
		t.Errorf("%s of %q: %s", err.Code, err.Field, err.Msg)
	}
}

func TestBadParameters(t *testing.T) {
	path := write(t, onnxfile.MLP(4, 4, 2, 2))
	for key, values := range map[string][]any{
		"threads":       {0.0, -1.0, 1.5, 1000.0, "many", true},
		"inter_threads": {0.0},
		"device":        {-1.0},
		"provider":      {"tpu", 1.0},
		"optimization":  {"most"},
		"spinning":      {"perhaps"},
		"warmup":        {3.0},
		"batch_axis":    {"second"},
		"colour":        {"red"},
	} {
		for _, v := range values {
			if err := bad(t, path, stream.Params{key: v}); err.Field != key || err.Code != stream.InvalidArgument {
				t.Errorf("%s=%v: %s of %q", key, v, err.Code, err.Field)
			}
		}
	}
	// The library that `make onnxruntime` fetches computes on the CPU.
	if err := bad(t, path, stream.Params{"provider": "cuda"}); err.Field != "provider" ||
		err.Code != stream.Unavailable || !strings.Contains(err.Msg, "onnx.library") {
		t.Errorf("%s of %q: %s", err.Code, err.Field, err.Msg)
	}
}

// A failed load takes no memory or session from loaded models.
func TestBadModelLeavesOthers(t *testing.T) {
	r := newRig(t)
	good := r.load(t, workers.Config{Name: "good", Source: write(t, onnxfile.MLP(4, 4, 2, 2))})
	loaded := make(chan error)
	for range 2 {
		go func() {
			_, err := r.LoadConfig(context.Background(), workers.Config{Name: "bad", Kind: "onnx",
				Source: faces + ".none"}, true)
			loaded <- err
		}()
	}
	for range 2 {
		if err := <-loaded; stream.CodeOf(err) != stream.NotFound {
			t.Errorf("%v", err)
		}
	}
	if n, users := inUse(); n != 1 || users != 1 {
		t.Errorf("%d sessions with %d users", n, users)
	}
	if g := call(t, good).send(t, tensor("x", stream.Float32, floats(1, 2, 3, 4), 4)); g.err != nil {
		t.Error(g.err)
	}
}
