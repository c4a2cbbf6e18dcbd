package main

import (
	"encoding/json"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/examples/spotter"
	"millrace/internal/codec"
	"millrace/internal/testneeds"
)

// digits writes the first frame of the example's clip, and returns its name.
func digits(t *testing.T, file string) string {
	t.Helper()
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	if err := os.WriteFile(clip, spotter.Clip, 0o600); err != nil {
		t.Fatal(err)
	}
	frame := command(t)
	frame.Path, frame.Args = testneeds.Program(t, "ffmpeg"), []string{"ffmpeg", "-v", "error", "-i", clip, "-frames:v", "1", file}
	if out, err := frame.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

const spotterModel = "spotter=../../examples/spotter/spotter.onnx,input.image.width=320,input.image.height=240,input.image.layout=NCHW,input.image.color=RGB," +
	"input.image.scale=0.00392157,output.boxes.boxes=boxes,output.boxes.scores=scores,output.boxes.threshold=0.3"

// absolute makes the file of a model's specification one that any folder finds.
func absolute(t *testing.T, spec string) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(spec, "../..", filepath.Join(wd, "../.."), 1)
}

// TestInferBoxes: boxes are a table, in pixels of the picture, and are drawn over it.
func TestInferBoxes(t *testing.T) {
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", absolute(t, spotterModel)))
	dir := t.TempDir()
	file, drawn := digits(t, filepath.Join(dir, "a.png")), filepath.Join(dir, "drawn.png")
	out, stderr, code := millrace(t, "infer", "spotter", file, "--overlay", drawn, "--addr", addr)
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 5 || !regexp.MustCompile(`^LABEL +SCORE +X1 +Y1 +X2 +Y2$`).MatchString(lines[3]) {
		t.Fatalf("%s", out)
	}
	row := regexp.MustCompile(`^\d +(0\.\d{3}|1\.000)( +\d+\.\d){4}$`)
	for _, line := range lines[4:] {
		if !row.MatchString(line) {
			t.Errorf("%q is not a row of a box", line)
		}
	}
	if strings.Contains(out, "FP32") {
		t.Errorf("the tensors of the boxes are there too:\n%s", out)
	}
	before, errBefore := os.ReadFile(file)
	after, errAfter := os.ReadFile(drawn)
	if errBefore != nil || errAfter != nil || codec.Sniff(after) != codec.PNG || string(before) == string(after) {
		t.Errorf("the overlay: %v, %v, %d bytes", errBefore, errAfter, len(after))
	}
}

// TestInferFolder: each picture is answered under its name, one that fails does not keep
// the others from being answered, and the exit status says so.
func TestInferFolder(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion")
	dir, drawn := t.TempDir(), filepath.Join(t.TempDir(), "new", "drawn")
	for _, name := range []string{"a.jpg", "c.JPEG"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := jpeg.Encode(f, image.NewGray(image.Rect(0, 0, 96, 80)), nil); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	for _, name := range []string{"b.png", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, stderr, code := millrace(t, "infer", "eyes", dir, "--overlay", drawn, "--addr", addr)
	a, c := filepath.Join(dir, "a.jpg"), filepath.Join(dir, "c.JPEG")
	if code != 1 || !strings.HasPrefix(out, a+"\nmodel ") || strings.Count(out, "\nno boxes\n") != 2 || !strings.Contains(out, "\n\n"+c+"\n") || strings.Contains(out+stderr, "notes.txt") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	if !strings.Contains(stderr, "b.png: is not a JPEG, PNG or WebP picture") || !strings.Contains(stderr, "1 of 3 pictures failed") {
		t.Errorf("%s", stderr)
	}
	for _, name := range []string{"a.jpg", "c.JPEG"} {
		if b, err := os.ReadFile(filepath.Join(drawn, name)); err != nil || codec.Sniff(b) != codec.JPEG {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, _, code = millrace(t, "infer", "eyes", dir, "--json", "--addr", addr)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 1 || len(lines) != 3 {
		t.Fatalf("exit status %d\n%s", code, out)
	}
	for i, line := range lines {
		var row struct {
			File    string
			Outputs []any
			Error   struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || filepath.Dir(row.File) != dir {
			t.Errorf("%v: %s", err, line)
		}
		if failed := filepath.Base(row.File) == "b.png"; failed != (i == 1) || failed != (row.Error.Code == "invalid_argument") || failed != (len(row.Outputs) == 0) {
			t.Errorf("%s", line)
		}
	}
	if out, stderr, code = millrace(t, "infer", "eyes", a, c, "--addr", addr); code != 0 || stderr != "" || !strings.Contains(out, c) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}

// A file is loaded under its own name or under another one.
func TestLoadFile(t *testing.T) {
	t.Parallel()
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "m=motion"))
	path := filepath.Join(t.TempDir(), "1", "model.onnx")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, spotter.Model, 0o600)); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{"model": nil, "find": {"--name", "find"}} {
		out, stderr, code := millrace(t, append([]string{"models", "load", path, "--addr", addr}, args...)...)
		if code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("exit status %d, %q %s", code, out, stderr)
		}
		if out, stderr, code = millrace(t, "models", "show", want, "--addr", addr); code != 0 || !strings.Contains(out, "image") {
			t.Errorf("exit status %d, %q %s", code, out, stderr)
		}
	}
}
