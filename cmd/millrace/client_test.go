package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	_ "image/png" // overlays
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/client"
	"millrace/client/load"
	"millrace/client/play"
	"millrace/internal/onnxfile"
	"millrace/internal/testneeds"
)

func picture(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 96, 80)), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "picture.jpg")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestModels(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion")
	list := func() map[string]string {
		t.Helper()
		out, stderr, code := millrace(t, "models", "--json", "--addr", addr)
		var rows []client.Entry
		if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
			t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
		}
		states := map[string]string{}
		for _, r := range rows {
			states[r.Name] = r.State
		}
		return states
	}
	if got := list(); len(got) != 1 || got["eyes"] != "READY" {
		t.Errorf("%v", got)
	}
	out, stderr, code := millrace(t, "models", "load", "delay", "fixed=1ms", "instances=2", "busy=false", "--addr",
		addr)
	if code != 0 || out != "delay\n" || !strings.HasPrefix(stderr, "loaded: ") {
		t.Errorf("exit status %d, %q\n%s", code, out, stderr)
	}
	out, stderr, code = millrace(t, "models", "load", "delay", "fixed=1ms", "instances=2", "busy=false", "--addr", addr)
	if code != 0 || out != "delay\n" || !strings.HasPrefix(stderr, "unchanged: ") {
		t.Errorf("exit status %d, %q\n%s", code, out, stderr)
	}
	if got := list(); got["delay"] != "READY" {
		t.Errorf("%v", got)
	}
	if out, stderr, code = millrace(t, "models", "scale", "delay", "3", "--addr", addr); code != 0 || out != "" {
		t.Errorf("exit status %d, %q\n%s", code, out, stderr)
	}
	cl, err := client.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	st, err := cl.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range st.Models {
		if m.Name == "delay" && m.Workers != 3 {
			t.Errorf("%d workers", m.Workers)
		}
	}
	if out, stderr, code = millrace(t, "models", "unload", "delay", "--addr", addr); code != 0 || out != "" {
		t.Errorf("exit status %d, %q\n%s", code, out, stderr)
	}
	_, stderr, code = millrace(t, "models", "unload", "nothing", "--addr", addr)
	if code != 1 || !strings.Contains(stderr, "nothing") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	out, _, code = millrace(t, "models", "--addr", addr)
	if code != 0 || !strings.HasPrefix(out, "NAME ") || !strings.Contains(out, "eyes") {
		t.Errorf("exit status %d, %q", code, out)
	}
	out, _, code = millrace(t, "models", "show", "eyes", "--addr", addr)
	if code != 0 || !strings.Contains(out, "image") || !strings.Contains(out, "boxes") ||
		!strings.Contains(out, "[-1 240 320 1]") {
		t.Errorf("exit status %d, %q", code, out)
	}
	if _, stderr, code = millrace(t, "models", "show", "nothing", "--addr", addr); code != 1 ||
		!strings.Contains(stderr, "nothing") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
	out, _, code = millrace(t, "models", "--kinds", "--json") // needs no server
	var kinds []struct {
		Name string
		Keys map[string]string `json:"parameters"`
	}
	keys := map[string]map[string]string{}
	err = json.Unmarshal([]byte(out), &kinds)
	for _, k := range kinds {
		keys[k.Name] = k.Keys
	}
	if err != nil || code != 0 || keys["delay"]["fixed"] == "" || keys["identity"] == nil {
		t.Errorf("exit status %d, %v, %s", code, err, out)
	}
}

func TestInfer(t *testing.T) {
	_, addr := serve(t, "--model", "eyes=motion", "--model", "same=identity")
	file := picture(t)
	out, stderr, code := millrace(t, "infer", "eyes", file, "--addr", addr)
	if code != 0 || !strings.Contains(out, "96x80") || !strings.Contains(out, "boxes") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	var a inferReply
	out, _, code = millrace(t, "infer", "eyes", file, "--json", "--addr", addr)
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != 0 || a.Model != "eyes" || len(a.Outputs) != 2 ||
		a.Params["width"] != 96.0 {
		t.Errorf("exit status %d, %v, %s", code, err, out)
	}
	words := command(t, "infer", "same", "--request", "-", "--json", "--addr", addr)
	words.Stdin = strings.NewReader(`{"inputs":[{"name":"x","datatype":"FP32","shape":[4],"data":[NaN,1,Infinity,` +
		`-Infinity]},{"name":"y","datatype":"BYTES","shape":[1],"data":["NaN"]}]}`)
	if out, stderr, code := finish(t, words); code != 0 ||
		!strings.Contains(out, `"data":["NaN",1,"Infinity","-Infinity"]`) || !strings.Contains(out, `"data":["NaN"]`) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	c := command(t, "infer", "same", "--request", "-", "--json", "--addr", addr)
	c.Stdin = strings.NewReader(`{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2.5]},` +
		`{"name":"s","datatype":"BYTES","shape":[1],"data":["hi"]}]}`)
	out, stderr, code = finish(t, c)
	a = inferReply{}
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != 0 || a.ID != "7" || len(a.Outputs) != 2 ||
		strings.Join(strings.Fields(string(a.Outputs[0].Data)), "") != "[1,2.5]" {
		t.Errorf("exit status %d, %v, %s%s", code, err, out, stderr)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"infer", "eyes", "none.jpg"}, "none.jpg"},
		{[]string{"infer", "nothing", file}, "nothing"},
		{[]string{"infer", "eyes", os.DevNull}, "is empty"},
		{[]string{"infer", "same", "--request", file}, "--request"},
	} {
		out, stderr, code := millrace(t, append(c.args, "--addr", addr)...)
		if code != 1 || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d, %q\n%s", c.args, code, out, stderr)
		}
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	p, addr := serve(t, "--model", "eyes=motion", "--model", "slow=delay,fixed=50ms,per_item=0ms,batching.max_size=1")
	file := clipFile(t)
	stream := func(want int, args ...string) (s play.Summary) {
		t.Helper()
		out, stderr, code := millrace(t, append([]string{"stream", "--json", "--addr", addr}, args...)...)
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != want {
			t.Fatalf("%v: exit status %d, %v\n%s%s", args, code, err, out, stderr)
		}
		if s.Frames != s.Results+s.Dropped()+s.Failed()+s.Lost {
			t.Errorf("%v: frames are unaccounted for: %+v", args, s)
		}
		return s
	}
	if s := stream(0, file, "--model", "eyes", "--policy", "every", "--realtime=false"); s.Frames != 30 ||
		s.Results != 30 || s.Width != 320 || s.Height != 240 || s.P50 <= 0 || s.P99 < s.P50 || s.Batch < 1 {
		t.Errorf("every frame: %+v", s)
	}
	if s := stream(0, file, "--model", "eyes", "--fps", "5", "--width", "160", "--height", "120"); s.Frames != 10 ||
		s.Width != 160 || s.Seconds < 1.7 {
		t.Errorf("five frames a second, in real time: %+v", s)
	}
	if s := stream(0, file, "--model", "eyes", "--policy", "every", "--duration", "1s",
		"--realtime=false"); s.Frames != 15 {
		t.Errorf("one second: %+v", s)
	}
	if s := stream(0, file, "--model", "slow", "--realtime=false"); s.Frames != 30 || s.Drops["superseded"] == 0 ||
		s.Width != 640 {
		t.Errorf("a slow model: %+v", s)
	}
	if s := stream(0, picture(t), "--model", "eyes"); s.Frames != 1 || s.Results != 1 {
		t.Errorf("a picture: %+v", s)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"none.mp4", "--model", "eyes"}, "none.mp4"},
		{[]string{file, "--model", "nothing"}, "nothing"},
		{[]string{"concat:x", "--model", "eyes"}, "concat"},
	} {
		out, stderr, code := millrace(t, append([]string{"stream", "--addr", addr}, c.args...)...)
		if code != 1 || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d, %q\n%s", c.args, code, out, stderr)
		}
	}

	// Ctrl-C ends the stream with the summary, and so does the server's end.
	endless := []string{"stream", file, "--model", "eyes", "--loop", "--addr", addr}
	one := begin(t, command(t, endless...))
	if line := one.until("results"); !strings.Contains(line, "fps") || !strings.Contains(line, "age p50") {
		t.Errorf("a second: %q", line)
	}
	if rest, code := one.signal(syscall.SIGINT); code != 0 || !strings.Contains(rest, "capture to result") {
		t.Errorf("Ctrl-C: exit status %d\n%s%s", code, rest, &one.stderr)
	}
	two := begin(t, command(t, endless...))
	two.until("results")
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("the server: exit status %d\n%s", code, &p.stderr)
	}
	two.until("capture to result")
	if code := status(t, two.end()); code != 1 || !strings.Contains(two.stderr.String(), "shutting down") {
		t.Errorf("without a server: exit status %d\n%s", code, &two.stderr)
	}
}

// For a graph with a step that takes the picture as sent, frames have the size of the video, although the first step
// takes a smaller picture. record sends the same frames.
func TestStreamOfWholePictures(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf("models:\n  - {name: eyes, source: motion}\n  - {name: blur, source: %s, python: %s}\n"+
		"  - {name: graph, source: graph, steps: [{model: eyes, input: {image: frame}}, {model: blur, input: "+
		"{image: frame, boxes: boxes}}]}\n",
		absolute(t, "../../examples/blur/blur.py"), testneeds.Python(t, "numpy", "PIL"))
	config := filepath.Join(t.TempDir(), "graph.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "--config", config)
	for _, c := range []struct {
		args  []string
		width int
	}{
		{[]string{"stream"}, 640},
		{[]string{"record", "--out", filepath.Join(t.TempDir(), "a.mill")}, 640},
		{[]string{"stream", "--width", "320"}, 320},
	} {
		var s play.Summary
		out, stderr, code := millrace(t, append(c.args, clipFile(t), "--model", "graph", "--json", "--duration",
			"300ms", "--realtime=false", "--addr", addr)...)
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 || s.Results == 0 || s.Width != c.width {
			t.Errorf("%v: exit status %d, %v, width %d, want %d\n%s%s", c.args, code, err, s.Width, c.width, out,
				stderr)
		}
	}
}

// TestOverlay: the files are written, and wrong file names are reported before anything is sent.
func TestOverlay(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, "--model", "eyes=motion")
	file, dir := clipFile(t), t.TempDir()
	film, still := filepath.Join(dir, "seen.mp4"), filepath.Join(dir, "seen.jpg")
	out, stderr, code := millrace(t, "stream", file, "--model", "eyes", "--addr", addr, "--realtime=false", "--policy",
		"every", "--overlay", film, "--picture", still)
	if code != 0 || !strings.Contains(out, film) || !strings.Contains(out, still) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	if n := framesOf(t, film); n != 30 {
		t.Errorf("%d frames", n)
	}
	whole(t, still)
	one := filepath.Join(dir, "one.png")
	if out, stderr, code := millrace(t, "stream", still, "--model", "eyes", "--addr", addr, "--overlay",
		one); code != 0 || !strings.Contains(out, one) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	whole(t, one)
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{"x.avi", 2, []string{file, "--overlay", "x.avi"}},
		{"x.mp4", 2, []string{file, "--picture", "x.mp4"}},
		{"a video is a video", 1, []string{file, "--overlay", "x.png"}},
		{"a picture is a picture", 1, []string{still, "--overlay", "x.mp4"}},
		{filepath.Join(dir, "none", "x.mp4"), 1, []string{file, "--overlay", filepath.Join(dir, "none", "x.mp4")}},
		{"is the camera connected?", 1, []string{"/dev/video9999"}},
	} {
		out, stderr, code := millrace(t, append([]string{"stream", "--model", "eyes", "--addr", addr, "--json"},
			c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d\n%s%s", c.args, code, out, stderr)
		}
	}
}

// framesOf counts the frames of a video.
func framesOf(t *testing.T, file string) (n int) {
	t.Helper()
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-count_frames", "-show_entries",
		"stream=nb_read_frames", "-of", "csv=p=0", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := fmt.Sscan(string(out), &n); err != nil {
		t.Fatalf("ffprobe said %q", out)
	}
	return n
}

// whole checks that a file is a complete picture.
func whole(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if img, _, err := image.Decode(bytes.NewReader(b)); err != nil || img.Bounds().Dx() < 320 {
		t.Errorf("%s: %v", file, err)
	}
}

// For a model with batches, a frame is one row, whatever the batch sizes, unless --size is given.
func TestBenchTensor(t *testing.T) {
	dir := t.TempDir()
	args := []string{"serve", "--http", "127.0.0.1:0", "--grpc", "off"}
	for name, dims := range map[string][]any{"rows": {"batch", 4}, "free": {"batch", 4, "length"}} {
		file := filepath.Join(dir, name+".onnx")
		if err := os.WriteFile(file, onnxfile.Identity(onnxfile.Float32, dims...), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--model", name+"="+file+",batching.max_size=2")
	}
	_, addr := readyServer(t, onnxRun(t, args...))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--model rows", 0, "3 answered"},
		{"--model rows --size 32", 0, "3 answered"},
		{"--model rows --size 48", 1, "A frame has --size bytes: for other ones give --size, or --file"},
		{"--model free --option shape=1,4,64", 0, "3 answered"},
	} {
		args := append([]string{"bench", "--addr", addr, "--protocol", "rest", "--tensor", "--frames", "3"},
			strings.Fields(c.args)...)
		if out, stderr, code := millrace(t, args...); code != c.code || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%s: exit status %d\n%s%s", c.args, code, out, stderr)
		}
	}
}

// Frames that a model refuses end the run early, and the message gives advice for other frames.
func TestBenchRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.onnx")
	if err := os.WriteFile(file, onnxfile.Identity(onnxfile.Float32, "batch", 4), 0o600); err != nil {
		t.Fatal(err)
	}
	two := onnxfile.Model{Inputs: []onnxfile.Value{{Name: "a", Type: onnxfile.Float32, Dims: []any{"batch", 1}},
		{Name: "b", Type: onnxfile.Float32, Dims: []any{"batch", 1}}}}
	two.Outputs = []onnxfile.Value{{Name: "sum", Type: onnxfile.Float32, Dims: []any{"batch", 1}}}
	two.Nodes = []onnxfile.Node{{Op: "Add", Inputs: []string{"a", "b"}, Outputs: []string{"sum"}}}
	both, request := filepath.Join(t.TempDir(), "both.onnx"), filepath.Join(t.TempDir(), "request.json")
	for path, data := range map[string][]byte{
		both: two.Bytes(), request: []byte(`{"inputs":[{"name":"a","datatype":"FP32","shape":[1,1],"data":[1]},` +
			`{"name":"b","datatype":"FP32","shape":[1,1],"data":[2]}]}`),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "rows="+file,
		"--model", "eyes=motion", "--model", "both="+both))
	if out, stderr, code := millrace(t, "bench", "--addr", addr, "--model", "both", "--frames", "3", "--request",
		request); code != 0 || !strings.Contains(out, "3 answered") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	for _, c := range []struct{ args, want string }{
		{"--model both", "Model both has the inputs a, b: give --request FILE"},
		{"--model both --protocol rest --tensor", "Model both has the inputs a, b: give --request FILE"},
		{"--model rows", "Model rows takes tensors: give --protocol rest --tensor"},
		{"--model rows --protocol v1", "Model rows takes tensors: give --protocol rest --tensor"},
		{"--model rows --protocol rest --file " + file, "Model rows takes tensors: give --protocol rest --tensor"},
		{"--model eyes", "--file with a picture"},
	} {
		args := append([]string{"bench", "--addr", addr, "--duration", "1h"}, strings.Fields(c.args)...)
		out, stderr, code := millrace(t, args...)
		if code != 1 || !strings.Contains(stderr, c.want) ||
			!strings.Contains(out, "ended early: the first frames all failed with one error") {
			t.Errorf("%s: exit status %d\n%s%s", c.args, code, out, stderr)
		}
	}
}

func TestBench(t *testing.T) {
	_, addr := serve(t, "--model", "same=identity")
	var r load.Report
	csv := filepath.Join(t.TempDir(), "rows.csv")
	out, stderr, code := millrace(t, "bench", "--model", "same", "--addr", addr, "--streams", "2", "--frames", "50",
		"--window", "2", "--option", "policy=every", "--json", "--csv", csv)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Answered != 100 || !r.OK() {
		t.Errorf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if text, err := os.ReadFile(csv); err != nil || !strings.HasPrefix(string(text), "at,") {
		t.Errorf("%q, %v", text, err)
	}
	out, stderr, code = millrace(t, "bench", "--model", "same", "--addr", addr, "--protocol", "rest", "--frames", "10")
	if code != 0 || !strings.Contains(out, "10 answered") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	out, stderr, code = millrace(t, "bench", "--model", "same", "--addr", addr, "--protocol", "rest", "--tensor",
		"--frames", "10")
	if code != 0 || !strings.Contains(out, "10 answered") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	failing := []string{"bench", "--model", "same", "--addr", addr, "--protocol", "rest", "--tensor", "--option",
		"datatype=FP32", "--option", "shape=7", "--frames", "3"}
	const first = "inputs[0].data: has 1024 bytes; expected FP32 of shape [7]"
	if out, stderr, code = millrace(t, failing...); code != 1 ||
		!strings.Contains(out, "3 invalid_argument, the first: "+first) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	r = load.Report{}
	out, stderr, code = millrace(t, append(failing, "--json")...)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 ||
		!strings.HasPrefix(r.FirstErrors["invalid_argument"], first) {
		t.Errorf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if out, stderr, code = millrace(t, "bench", "--model", "nothing", "--addr", addr, "--frames", "1"); code != 1 ||
		out != "" || !strings.Contains(stderr, "nothing") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}
