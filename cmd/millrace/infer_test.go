package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/client"
	"millrace/examples/spotter"
	"millrace/internal/codec"
	"millrace/internal/testneeds"
	"millrace/stream"
)

// digits writes the first frame of the example's clip, and returns the file's name.
func digits(t *testing.T, file string) string {
	t.Helper()
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	if err := os.WriteFile(clip, spotter.Clip, 0o600); err != nil {
		t.Fatal(err)
	}
	frame := command(t)
	frame.Path, frame.Args = testneeds.Program(t, "ffmpeg"), []string{"ffmpeg", "-v", "error", "-i", clip, "-frames:v",
		"1", file}
	if out, err := frame.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

const spotterModel = "spotter=../../examples/spotter/spotter.onnx,input.image.width=320,input.image.height=240," +
	"input.image.layout=NCHW,input.image.color=RGB," +
	"input.image.scale=0.00392157,output.boxes.boxes=boxes,output.boxes.scores=scores,output.boxes.threshold=0.3"

// absolute makes the file in a model's specification absolute.
func absolute(t *testing.T, spec string) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(spec, "../..", filepath.Join(wd, "../.."), 1)
}

// Boxes are printed as a table, in pixels of the picture, and drawn over the picture.
func TestInferBoxes(t *testing.T) {
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model",
		absolute(t, spotterModel)))
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

// A long JSON text is printed unchanged, and boxes that cannot be shown are counted.
func TestAnswerRows(t *testing.T) {
	text := "{\"count\": 5000,\n" + `"found":[` + strings.Repeat(`{"x":1},`, 20) + `{}]}`
	nan := float32(math.NaN())
	boxes := stream.AppendFloat32(nil, 1, 2, 3, 4, nan, 2, 3, 4)
	list := []stream.Tensor{
		{Name: "output", Datatype: stream.Bytes, Shape: []int{1},
			Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)},
		{Name: "boxes", Datatype: stream.Float32, Shape: []int{2, 4}, Data: boxes},
	}
	for _, c := range []struct {
		boxes []byte
		want  string
	}{{boxes, "not shown: 1 of 2 boxes"}, {boxes[16:], "no boxes\nnot shown: 1 of 1 boxes"}, {boxes[:16], "1.0"}} {
		list[1].Data, list[1].Shape = c.boxes, []int{len(c.boxes) / 16, 4}
		var b strings.Builder
		if err := (&answerWriter{w: &b}).answer("", &client.Answer{Model: "m", Outputs: list}, nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), c.want) || !strings.Contains(b.String(), `{"count":5000,"found":[{"x":1},`) ||
			!strings.Contains(b.String(), "--save output=out.json") {
			t.Errorf("%s, want %q", b.String(), c.want)
		}
		if strings.Contains(b.String(), "not shown") != strings.Contains(c.want, "not shown") {
			t.Errorf("%s", b.String())
		}
	}
}

// Each picture is answered under its name. A failed picture does not stop the other pictures; the exit status reports
// the failure.
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
	if code != 1 || !strings.HasPrefix(out, a+"\nmodel ") || strings.Count(out, "\nno boxes\n") != 2 ||
		!strings.Contains(out, "\n\n"+c+"\n") || strings.Contains(out+stderr, "notes.txt") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	if !strings.Contains(stderr, "b.png: is not a JPEG, PNG or WebP picture") ||
		!strings.Contains(stderr, "1 of 3 pictures failed") {
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
		if failed := filepath.Base(row.File) == "b.png"; failed != (i == 1) ||
			failed != (row.Error.Code == "invalid_argument") || failed != (len(row.Outputs) == 0) {
			t.Errorf("%s", line)
		}
	}
	if out, stderr, code = millrace(t, "infer", "eyes", a, c, "--addr", addr); code != 0 || stderr != "" ||
		!strings.Contains(out, c) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}

// The file's name determines the form of a saved output; impossible forms are refused. JSON has all elements.
func TestInferSave(t *testing.T) {
	_, addr := serve(t, "--model", "same=identity")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	shot, err := os.ReadFile(picture(t))
	if err != nil {
		t.Fatal(err)
	}
	request := `{"inputs":[{"name":"pixels","datatype":"UINT8","shape":[1,2,1,3],"data":[1,2,3,4,5,6]},` +
		`{"name":"gray","datatype":"UINT8","shape":[1,2,1],"data":[7,8]},` +
		`{"name":"numbers","datatype":"FP32","shape":[2],"data":[1.5,-2]},{"name":"texts","datatype":"BYTES",` +
		`"shape":[2],"data":["a","<b>"]},{"name":"one","datatype":"BYTES","shape":[1],"data":["text"]}]}`
	for name, text := range map[string]string{"r.json": request, "sent.jpg": string(shot)} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	infer := func(args ...string) (stdout, stderr string, code int) {
		t.Helper()
		return millrace(t, append([]string{"infer", "same", "--addr", addr}, args...)...)
	}
	saved := func(code int, stderr, name string) string {
		t.Helper()
		b, err := os.ReadFile(file(name))
		if code != 0 || err != nil {
			t.Errorf("exit status %d, %v\n%s", code, err, stderr)
		}
		return string(b)
	}
	if out, _, _ := infer(file("sent.jpg")); !strings.Contains(out,
		fmt.Sprintf("a picture of type jpeg, %d bytes: --save output=out.jpg", len(shot))) {
		t.Errorf("%s", out)
	}
	for _, name := range []string{"a.jpg", "bare"} {
		out, stderr, code := infer(file("sent.jpg"), "--save", "output="+file(name))
		if want := fmt.Sprintf("saved output as %s: a picture of type jpeg, %d bytes\n", file(name),
			len(shot)); saved(code, stderr, name) != string(shot) || !strings.HasSuffix(out, want) ||
			strings.Contains(out, "--save") {
			t.Errorf("%s, want %s", out, want)
		}
	}
	if _, stderr, code := infer(file("sent.jpg"), "--overlay", file("x.png")); code != 1 ||
		!strings.Contains(stderr, "--overlay: the answer of model same has no boxes, keypoints, mask or classes to "+
			"draw: it has output. --save writes") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	if out, stderr, code := infer(file("sent.jpg"), "--json", "--save", "output="+file("a.jpg")); saved(code, stderr,
		"a.jpg") == "" || !strings.HasPrefix(stderr, "saved output as ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%s\n%s", out, stderr)
	}
	if _, stderr, code := infer(file("sent.jpg"), "--save", "output="+file("a.jpg")); saved(code, stderr,
		"a.jpg") != string(shot) {
		t.Error("the saved element is not that of the answer")
	}
	_, stderr, code := infer("--request", file("r.json"), "--save", "pixels="+file("p.png"), "--save",
		"gray="+file("g.PNG"), "--save", "numbers="+file("n.npy"), "--save", "one="+file("a.jpg.txt"))
	for name, want := range map[string]color.Color{"p.png": color.NRGBA{4, 5, 6, 255}, "g.PNG": color.Gray{8}} {
		img, err := png.Decode(strings.NewReader(saved(code, stderr, name)))
		if err != nil {
			t.Fatal(err)
		}
		last := img.Bounds().Max.Sub(image.Pt(1, 1))
		if got := color.NRGBAModel.Convert(img.At(last.X, last.Y)); got != color.NRGBAModel.Convert(want) {
			t.Errorf("%s: the last pixel is %v, want %v", name, got, want)
		}
	}
	header := "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
	if got := saved(code, stderr, "n.npy"); len(got) != 128+8 || !strings.HasPrefix(got, header) ||
		got[127:] != "\n\x00\x00\xc0\x3f\x00\x00\x00\xc0" {
		t.Errorf("%q", got)
	}
	if got := saved(code, stderr, "a.jpg.txt"); got != "text" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct{ sent, save, want string }{
		{"sent.jpg", "x=" + file("x.png"), "the answer of model same has no output x: it has output"},
		{"sent.jpg", "output=" + file("x.png"), "give a name that ends in .jpg, not "},
		{"sent.jpg", "output=" + file("x.gif"), "give a name that ends in .jpg, not "},
		{"sent.jpg", "output=" + file("x.TIFF"), "give a name that ends in .jpg, not "},
		{"sent.jpg", "output=" + file("x.npy"), "give a name that ends in .jpg, not "},
		{"sent.jpg", "output=" + file("sent.jpg"), "would replace " + file("sent.jpg") + ", which is sent"},
		{"sent.jpg", "output", "is not OUTPUT=FILE"},
		{"r.json", "numbers=" + file("x.png"), "FP32 [2]: give a name that ends in .npy, not "},
		{"r.json", "pixels=" + file("x.txt"), "a picture: give a name that ends in .png, .jpg or .npy, not "},
		{"r.json", "texts=" + file("x.txt"), "2 elements, and a file gets one: --json prints them"},
		{"r.json", "one=" + file("x.png"), "4 bytes that are no JPEG, PNG or WebP picture"},
		{"r.json", "one=" + file("x.npy"), "not as .npy"},
		{"r.json", "one=" + dir, "is not a regular file"},
		{"", "output=" + file("x.png"), "is for one picture or request"},
	} {
		args := []string{dir, "--save", c.save}
		switch {
		case c.sent == "r.json":
			args = []string{"--request", file("r.json"), "--save", c.save}
		case c.sent != "":
			args[0] = file(c.sent)
		}
		if _, stderr, code := infer(args...); code == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d\n%s", args, code, stderr)
		}
	}
	if _, err := os.Stat(file("x.png")); err == nil {
		t.Error("a refused output was written")
	}
	out, _, _ := infer(file("sent.jpg"), "--json")
	if want := `"shape":[1],"parameters":{"content_type":"base64"},"data":["` +
		base64.StdEncoding.EncodeToString(shot) + `"]}`; !strings.Contains(out, want) {
		t.Errorf("%s", out)
	}
	out, _, _ = infer("--request", file("r.json"), "--json")
	if !strings.Contains(out, `"shape":[2],"data":["a","\u003cb\u003e"]}`) {
		t.Errorf("%s", out)
	}
}

// The error for a picture sent to a model with another required input names the input and gives advice.
func TestInferMissing(t *testing.T) {
	_, addr := serve(t, "--model", absolute(t, "blur=../../examples/blur/blur.py")+",python="+testneeds.Python(t,
		"numpy", "PIL"))
	shot := picture(t)
	_, stderr, code := millrace(t, "infer", "blur", shot, "--addr", addr)
	const want = "millrace: inputs.boxes: is missing: model blur needs this input besides the picture. Send both in " +
		"one request, as the calls of millrace examples blur do, here by --request FILE\n"
	if code != 1 || stderr != want {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	data, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	request := filepath.Join(t.TempDir(), "request.json")
	text := `{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":["` +
		base64.StdEncoding.EncodeToString(data) + `"]},{"name":"boxes","datatype":"FP32","shape":[0,4],"data":[]}]}`
	if err := os.WriteFile(request, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := millrace(t, "infer", "blur", "--request", request, "--addr", addr); code != 0 ||
		!strings.Contains(out, "UINT8") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}

// TestElements: numbers of 16 bits are in JSON and .npy with their values.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		datatype stream.Datatype
		data     []byte
		text     string
		npy      string
	}{
		{stream.Float16, []byte{0, 0x3c, 0, 0xfc}, `[1,"-Infinity"]`, "<f2"},
		{stream.BFloat, []byte{0x80, 0x3f, 0, 0xc0}, `[1,-2]`, "<f4"},
		{stream.Bool, []byte{1, 0}, `[true,false]`, "|b1"},
		{stream.Int64, make([]byte, 16), `[0,0]`, "<i8"},
	} {
		x := &stream.Tensor{Name: "x", Datatype: c.datatype, Shape: []int{2, 1}, Data: c.data}
		text, params, err := elementsJSON(x)
		if err != nil || params != nil || string(text) != c.text {
			t.Errorf("%s: %s, %v, %v, want %s", c.datatype, text, params, err, c.text)
		}
		var npy bytes.Buffer
		size, _ := strconv.Atoi(c.npy[2:])
		if err := writeNPY(&npy, x); err != nil || !strings.Contains(npy.String(), "'descr': '"+c.npy+"'") ||
			!strings.Contains(npy.String(), "'shape': (2,1,)") || npy.Len() != 128+2*size {
			t.Errorf("%s: %v, %q", c.datatype, err, npy.String())
		}
	}
}

// A file is loaded under its own name or another name.
func TestLoadFile(t *testing.T) {
	t.Parallel()
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "m=motion"))
	path := filepath.Join(t.TempDir(), "1", "model.onnx")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, spotter.Model, 0o600)); err != nil {
		t.Fatal(err)
	}
	capitals := filepath.Join(filepath.Dir(path), "CAPITALS.ONNX")
	if err := os.Link(path, capitals); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{"model": {path}, "find": {path, "--name", "find"},
		"CAPITALS": {capitals}} {
		out, stderr, code := millrace(t, append([]string{"models", "load", "--addr", addr}, args...)...)
		if code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("exit status %d, %q %s", code, out, stderr)
		}
		if out, stderr, code = millrace(t, "models", "show", want, "--addr", addr); code != 0 ||
			!strings.Contains(out, "image") {
			t.Errorf("exit status %d, %q %s", code, out, stderr)
		}
	}
}
