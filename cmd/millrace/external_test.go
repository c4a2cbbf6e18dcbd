package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/onnxfile"
)

// withExternal returns a model that adds weights from the file to the input.
func withExternal(location string) []byte {
	return onnxfile.Model{
		Inputs:       []onnxfile.Value{{Name: "x", Type: onnxfile.Float32, Dims: []any{"N", 2}}},
		Outputs:      []onnxfile.Value{{Name: "y", Type: onnxfile.Float32, Dims: []any{"N", 2}}},
		Nodes:        []onnxfile.Node{{Op: "Add", Inputs: []string{"x", "w"}, Outputs: []string{"y"}}},
		Initializers: []onnxfile.Tensor{{Name: "w", Type: onnxfile.Float32, Dims: []int64{2}, External: location}},
	}.Bytes()
}

func TestExternalFiles(t *testing.T) {
	model := append(withExternal("b.data"), withExternal("a.data")...) // fields of the same message
	if got := externalFiles(append(model, withExternal("b.data")...)); !slices.Equal(got,
		[]string{"a.data", "b.data"}) {
		t.Errorf("%q", got)
	}
	for _, odd := range [][]byte{nil, []byte("no model"), model[:len(model)-3]} {
		externalFiles(odd)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link.data")); err != nil {
		t.Fatal(err)
	}
	for _, location := range []string{"../secret", filepath.Join(outside, "secret"), "a/../../secret", "link.data",
		"missing.data", "."} {
		files, err := readExternal(filepath.Join(dir, "m.onnx"), withExternal(location))
		if err == nil || !strings.Contains(err.Error(), "m.onnx: its weights are in ") {
			t.Errorf("%s: %q %v", location, files, err)
		}
	}
}

// onnxLibrary returns the path of ONNX Runtime's library.
func onnxLibrary(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "millrace", "onnxruntime-*", "libonnxruntime.so*"))
	if len(found) == 0 {
		t.Fatal("ONNX Runtime's library is not in the cache folder: make onnxruntime")
	}
	return found[0]
}

// A file's weights are sent along, whatever the names of the file and of the weights.
func TestLoadWithExternalData(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion", "--onnx-library", onnxLibrary(t))
	for location, name := range map[string]string{"model.onnx.data": "first", "./my weights (1).bin": "second",
		"parts/größe.data": "third"} {
		dir := t.TempDir()
		at := filepath.Join(dir, location)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("\x00\x00\x80\x3f\x00\x00\x00\x40"), 0o600); err != nil { // 1, 2
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+" model.onnx"), withExternal(location), 0o600); err != nil {
			t.Fatal(err)
		}
		out, stderr, code := millrace(t, "models", "load", filepath.Join(dir, name+" model.onnx"), "--addr", addr)
		if code != 0 || out != name+"-model\n" {
			t.Errorf("%s: exit status %d, %q %s", location, code, out, stderr)
		}
	}
}
