package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// octoaiFolder has services in the form of OctoAI.
const octoaiFolder = "../../examples/migrating/octoai"

// octoai prepares a run of millrace octoai in a folder, with Debian's Python and the packages of scripts/deps.sh.
// modules are the modules needed by the service.
func octoai(t *testing.T, dir string, modules []string, args ...string) *exec.Cmd {
	t.Helper()
	interpreter := testneeds.Python(t, modules...)
	c := command(t, append([]string{"octoai"}, args...)...)
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = abs
	c.Env = append(c.Env, "PATH="+filepath.Dir(interpreter)+string(os.PathListSeparator)+os.Getenv("PATH"))
	return c
}

// octoaiServer is a running service.
type octoaiServer struct {
	*process
	base string
}

func serveOctoai(t *testing.T, c *exec.Cmd) *octoaiServer {
	t.Helper()
	p := begin(t, c)
	return &octoaiServer{p, httpAddr.FindString(p.until("millrace is ready: "))}
}

// ask sends a request and returns the status, the header and the body of the reply.
func (s *octoaiServer) ask(method, path, contentType, body string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, &s.stderr)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// output calls a path and decodes the output into v.
func (s *octoaiServer) output(path, contentType, body string, v any) (header http.Header) {
	s.t.Helper()
	status, header, text := s.ask("POST", path, contentType, body)
	var reply struct {
		Output    json.RawMessage
		Analytics map[string]float64
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil || status != http.StatusOK {
		s.t.Fatalf("%s: %d %s\n%s", path, status, text, &s.stderr)
	}
	if names := slices.Sorted(maps.Keys(reply.Analytics)); !slices.Equal(names,
		[]string{"inference_time_ms", "performance_time_ms"}) {
		s.t.Errorf("analytics has %v", names)
	}
	if infer, all := reply.Analytics["inference_time_ms"], reply.Analytics["performance_time_ms"]; infer < 0 ||
		infer > all {
		s.t.Errorf("the method ran for %v ms of %v ms", infer, all)
	}
	if err := json.Unmarshal(reply.Output, v); err != nil {
		s.t.Fatalf("%s: %v", reply.Output, err)
	}
	return header
}

const inJSON = "application/json"

// TestOctoaiHello serves only a service: methods, forms and documents are at the root, and errors have the form of
// FastAPI.
func TestOctoaiHello(t *testing.T) {
	c := octoai(t, filepath.Join(octoaiFolder, "hello"), nil, "run", "--port", "0")
	c.Env = append(c.Env, "OCTOAI_REPLICA_NAME=replica-7")
	s := serveOctoai(t, c)
	var said string
	header := s.output("/infer", inJSON, `{"prompt": "Ada"}`, &said)
	if said != "Hello, Ada!" || header.Get("OCTOAI_REPLICA_NAME") != "replica-7" ||
		header.Get("octoai-inference-time-ms") != "" || header.Get("Content-Type") != inJSON {
		t.Errorf("%q %v", said, header)
	}
	var counts map[string]int
	if s.output("/count-words", inJSON, `{"text": "to be or not to be"}`, &counts); counts["be"] != 2 ||
		len(counts) != 4 {
		t.Errorf("%v", counts)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	file, err := w.CreateFormFile("file", "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("first line\nsecond line\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteField("title", "it says"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s.output("/upload", w.FormDataContentType(), form.String(), &said); said != "it says: first line" {
		t.Errorf("%q", said)
	}
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		{"GET", "/healthcheck", "", "", 200, `{"status":"RUNNING","async_enable":true}`},
		{"GET", "/", "", "", 200, `{"docs":"/docs","openapi":"/openapi.json"}`},
		{"GET", "/docs", "", "", 302, ""},
		{"GET", "/docs/", "", "", 200, "<!doctype html>"},
		{"GET", "/openapi.json", "", "", 200, `"/count-words"`},
		{"GET", "/apps/service/openapi.json", "", "", 200, `"servers":[{"url":"../../apps/service"}]`},
		{"GET", "/apps/service/docs", "", "", 302, ""},
		{"GET", "/apps/service/", "", "", 200, `{"docs":"/apps/service/docs","openapi":"/apps/service/openapi.json"}`},
		{"GET", "/apps/service/healthcheck", "", "", 200, `"RUNNING"`},
		{"POST", "/apps/service/infer", inJSON, `{"prompt": "x"}`, 200, `"Hello, x!"`},
		{"POST", "/infer", inJSON, `{}`, 422, `"loc":["body","prompt"]`},
		{"POST", "/infer", inJSON, `{`, 422, `"loc":["body",1]`},
		{"POST", "/infer", "", ``, 422, `"loc":["body"]`},
		{"POST", "/upload", w.FormDataContentType(), `--`, 400, `{"detail":"`},
		{"POST", "/infer", inJSON, `{"prompt": "x", "times": 101}`, 500, "Internal Server Error"},
		{"GET", "/infer", "", "", 405, `{"detail":"Method Not Allowed"}`},
		{"POST", "/nothing", inJSON, "{}", 404, `{"detail":"Not Found"}`},
	} {
		if status, _, body := s.ask(c.method, c.path, c.kind, c.body); status != c.status ||
			!strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, body, c.status, c.says)
		}
	}
	if _, code := s.signal(syscall.SIGTERM); code != 0 ||
		!strings.Contains(s.stderr.String(), "times is more than 100") {
		t.Errorf("exit status %d\n%s", code, &s.stderr)
	}
}

// TestOctoaiExamples runs the example requests printed by the command line against their service.
func TestOctoaiExamples(t *testing.T) {
	folder := filepath.Join(octoaiFolder, "hello")
	s := serveOctoai(t, octoai(t, folder, nil, "run", "--port", "0"))
	for format, shell := range map[string][]string{"curl": {"sh"}, "python": {testneeds.Python(t), "-"}} {
		example, errs, code := finish(t, octoai(t, folder, nil, "generate-usage-examples", "--format", format))
		if code != 0 {
			t.Fatal(errs)
		}
		_, example, _ = strings.Cut(example, "\n") // the name of the program
		c := exec.Command(shell[0], shell[1:]...)
		c.Stdin = strings.NewReader(strings.ReplaceAll(example, "http://localhost:8080", s.base))
		out, err := c.Output()
		if err != nil || !strings.Contains(string(out), "Hello, A text!") {
			t.Errorf("%s: %v %s\n%s", format, err, out, example)
		}
	}
}

// Programs that use octoai.client get the service's replies and errors.
func TestOctoaiClient(t *testing.T) {
	s := serveOctoai(t, octoai(t, filepath.Join(octoaiFolder, "hello"), nil, "run", "--port", "0"))
	stands, err := filepath.Abs("../../python/compat")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(testneeds.Python(t), "-B", "-c", `
import sys
from octoai.client import Client
from octoai.errors import OctoAIServerError, OctoAIValidationError
client = Client(token="t")
print(client.health_check(sys.argv[1] + "/healthcheck"), client.infer(sys.argv[1] + "/infer", {"prompt": "Ada"})["output"])
for inputs, kind in ({}, OctoAIValidationError), ({"prompt": "", "times": 101}, OctoAIServerError):
    try:
        client.infer(sys.argv[1] + "/infer", inputs)
    except kind as e:
        print(e)
`, s.base)
	c.Env = append(os.Environ(), "PYTHONPATH="+stands)
	out, err := c.CombinedOutput()
	for _, want := range []string{"200 Hello, Ada!", `status 422: {"detail":`, "status 500: Internal Server Error"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%v: %s has no %q", err, out, want)
		}
	}
}

// Assets are stored once, and a service without assets ends with the reason.
func TestOctoaiAssets(t *testing.T) {
	folder, volume := filepath.Join(octoaiFolder, "assets"), t.TempDir()
	at := func(args ...string) *exec.Cmd {
		c := octoai(t, folder, nil, args...)
		// keeps PYTHONPATH, after our folder
		c.Env = append(c.Env, "OCTOAI_VOLUME_PATH="+volume, "PYTHONPATH="+t.TempDir())
		return c
	}
	for dir, want := range map[string]int{"assets": 10, "hello": 11} {
		if _, errs, code := finish(t, octoai(t, filepath.Join(octoaiFolder, dir), nil, "store-assets",
			"--check-is-needed")); code != want {
			t.Errorf("%s: exit status %d, want %d\n%s", dir, code, want, errs)
		}
	}
	if _, errs, code := finish(t, at("run", "--port", "0")); code != 1 ||
		!strings.Contains(errs, "setup: FileNotFoundError") || !strings.Contains(errs, "weights.json") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	if _, errs, code := finish(t, at("store-assets")); code != 0 {
		t.Fatal(errs)
	}
	s := serveOctoai(t, at("run", "--port", "0"))
	var sum float64
	if s.output("/infer", inJSON, `{"inputs": [1, 2, 3]}`, &sum); sum != 1.5 {
		t.Errorf("%v", sum)
	}
}

// Pictures are sent and answered in base64, and pydantic models describe the objects found.
func TestOctoaiPictures(t *testing.T) {
	s := serveOctoai(t, octoai(t, filepath.Join(octoaiFolder, "detector"), []string{"numpy", "PIL", "pydantic"}, "run",
		"--port", "0", "--async-enable", "false"))
	picture := image.NewGray(image.Rect(0, 0, 64, 48))
	for y := 10; y < 20; y++ {
		for x := 30; x < 50; x++ {
			picture.SetGray(x, y, color.Gray{Y: 255})
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	body := func(value string) string { return `{"image": {"data": ` + value + `}}` }
	var found struct {
		Detections []struct {
			Name       string
			Confidence float64
			Box        struct{ X1, Y1, X2, Y2 float64 }
		}
		Picture struct{ Data string } `json:"image_with_boxes"`
	}
	s.output("/infer", inJSON, body(`"`+base64.StdEncoding.EncodeToString(file.Bytes())+`"`), &found)
	if len(found.Detections) != 1 || found.Detections[0].Box != struct{ X1, Y1, X2, Y2 float64 }{30, 10, 50, 20} ||
		found.Detections[0].Name != "light" {
		t.Errorf("%+v", found.Detections)
	}
	data, err := base64.StdEncoding.DecodeString(found.Picture.Data)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if r, g, _, _ := drawn.At(30, 10).RGBA(); r != 0xffff || g != 0 {
		t.Errorf("the corner is %v", drawn.At(30, 10))
	}
	// The server's own listener is at a private address.
	for value, want := range map[string]string{`{"url": "` + s.base + `/docs/"}`: "Internal Server Error",
		`{"url": "ftp://x/"}`: `"loc":["body","image","data"`} {
		if _, _, text := s.ask("POST", "/infer", inJSON, body(value)); !strings.Contains(text, want) {
			t.Errorf("%s: %s", value, text)
		}
	}
	if _, _, text := s.ask("GET", "/healthcheck", "", ""); text != `{"status":"RUNNING","async_enable":false}` {
		t.Errorf("%s", text)
	}
	if s.signal(syscall.SIGTERM); !strings.Contains(s.stderr.String(), "127.0.0.1 is a private address") {
		t.Errorf("%s", &s.stderr)
	}
}

// TestOctoaiSound: sound is read from WAV files.
func TestOctoaiSound(t *testing.T) {
	s := serveOctoai(t, octoai(t, filepath.Join(octoaiFolder, "speech"), []string{"numpy"}, "run", "--port", "0"))
	for frequency, want := range map[float64]string{0: "silence", 440: "A", 523.25: "C"} {
		var heard struct{ Text string }
		body, err := json.Marshal(map[string]map[string]string{
			"audio": {"data": base64.StdEncoding.EncodeToString(wav(frequency))}})
		if err != nil {
			t.Fatal(err)
		}
		if s.output("/infer", inJSON, string(body), &heard); heard.Text != want {
			t.Errorf("%v Hz: %q, want %q", frequency, heard.Text, want)
		}
	}
}

// wav returns a tone of half a second.
func wav(frequency float64) []byte {
	const rate, n = 16000, 8000
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt " +
		"\x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x80\x3e\x00\x00")
	for i := range n {
		v := int16(20000 * math.Sin(2*math.Pi*frequency*float64(i)/rate))
		b = append(b, byte(v), byte(uint16(v)>>8))
	}
	size := len(b) - 8
	b[4], b[5] = byte(size), byte(size>>8)
	return b
}

// Until setup has returned, requests are answered with the state. A dead process is replaced, and only its own
// request fails.
func TestOctoaiStates(t *testing.T) {
	dir := t.TempDir()
	service := `
import os
from octoai.service import Service

class Slow(Service):
    def on_server_startup(self):
        self.pipe = open("go")  # blocks until the test opens it
    def on_server_shutdown(self):
        print("the hook at the end")
    def setup(self):
        self.pipe.read()
    def infer(self, x: int) -> int:
        if x < 0:
            os._exit(3)
        if x == 99:
            open("hold").read()
        return x
`
	if err := os.WriteFile(filepath.Join(dir, "service.py"), []byte(service), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(twoPorts(t))
	s := &octoaiServer{begin(t, octoai(t, dir, nil, "run", "--port", port, "--", "--drain", "1m")),
		"http://127.0.0.1:" + port}
	release, err := os.OpenFile(filepath.Join(dir, "go"), os.O_WRONLY, 0) // blocks until the service opens the FIFO
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{{"GET", "/healthcheck", `{"status":"SETUP_SERVICE","async_enable":true}`},
		{"POST", "/infer", `{"status":"SETUP_SERVICE"}`}} {
		if status, _, body := s.ask(c[0], c[1], inJSON, ""); status != http.StatusServiceUnavailable || body != c[2] {
			t.Errorf("%s: %d %s, want %s", c[1], status, body, c[2])
		}
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil { // for the next process
		t.Fatal(err)
	}
	s.until("millrace is ready: ")
	if status, _, body := s.ask("POST", "/infer", inJSON, `{"x": -1}`); status != http.StatusInternalServerError ||
		body != "Internal Server Error" {
		t.Errorf("%d %s", status, body)
	}
	var x int
	if s.output("/infer", inJSON, `{"x": 7}`, &x); x != 7 {
		t.Errorf("%d", x)
	}
	// At the end, the request in flight is answered, and other requests get the state.
	if err := syscall.Mkfifo(filepath.Join(dir, "hold"), 0o600); err != nil {
		t.Fatal(err)
	}
	last := make(chan string, 1)
	go func() {
		resp, err := http.Post(s.base+"/infer", inJSON, strings.NewReader(`{"x": 99}`))
		if err != nil {
			last <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		last <- string(body)
	}()
	// blocks until the method opens the FIFO
	if release, err = os.OpenFile(filepath.Join(dir, "hold"), os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		status, _, body := s.ask("GET", "/healthcheck", "", "")
		if status == http.StatusServiceUnavailable && body == `{"status":"SHUTTING_DOWN","async_enable":true}` {
			break
		}
		if status != http.StatusOK || time.Now().After(end) {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, _, body := s.ask("POST", "/infer", inJSON, `{"x": 1}`); status != http.StatusServiceUnavailable ||
		body != `{"status":"SHUTTING_DOWN"}` {
		t.Errorf("%d %s", status, body)
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	if body := <-last; !strings.HasPrefix(body, `{"output":99,`) {
		t.Errorf("%s", body)
	}
	if code := status(t, s.end()); code != 0 || strings.Count(s.stderr.String(), "the hook at the end") != 1 {
		t.Errorf("exit status %d\n%s", code, &s.stderr)
	}
}
