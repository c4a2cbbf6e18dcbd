package tasks_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/ctxio"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// clip returns a video of n frames at 10 frames a second, 64x48 pixels.
func clip(t *testing.T, n int, name string) string {
	t.Helper()
	const encoded = 300 // frames of the longest clip that is not repeated
	path := filepath.Join(t.TempDir(), name)
	ffmpeg := func(args ...string) {
		t.Helper()
		out, err := exec.Command(testneeds.Program(t, "ffmpeg"), append([]string{"-loglevel", "error"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48:rate=10", "-frames:v", fmt.Sprint(min(n, encoded)), "-pix_fmt",
		"yuv420p", path)
	if n > encoded {
		once := filepath.Join(t.TempDir(), name)
		if err := os.Rename(path, once); err != nil {
			t.Fatal(err)
		}
		ffmpeg("-stream_loop", "-1", "-i", once, "-c", "copy", "-frames:v", fmt.Sprint(n), path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// withEyes adds a model that takes pictures.
func withEyes(c *server.Config) {
	c.Models = append(c.Models, workers.Config{Name: "eyes", Kind: "motion"})
	c.Sources.AllowPrivate = true
}

// pictures returns an archive of n pictures.
func pictures(t *testing.T, n int) string {
	t.Helper()
	var picture, text bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(&text)
	for i := range n {
		w, err := z.Create(fmt.Sprintf("%d.jpg", i))
		if err == nil {
			_, err = w.Write(picture.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// slowEyes takes 200 ms for each batch.
var slowEyes = workers.Config{Name: "eyes", Source: "delay", Params: stream.Params{"fixed": "200ms"}}

// line is a line of a result.
type line struct {
	Task  string `json:"task"`
	File  string `json:"file"`
	Seq   int    `json:"seq"`
	PTS   int64  `json:"pts_us"`
	Model string `json:"model"`
	Width int    `json:"width"`
	Error *struct {
		Code string `json:"code"`
	} `json:"error"`
}

// lines returns the lines of the result of a finished task.
func (r *rig) lines(t tasks.Task) (all []line) {
	r.t.Helper()
	if t.State != tasks.Finished {
		r.t.Fatalf("the task is %s: %+v", t.State, t.Error)
	}
	a, text := r.do("GET", "/v2/tasks/"+t.ID+"/result", nil, nil)
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "application/x-ndjson" {
		r.t.Fatalf("the result: %d %v", a.StatusCode, a.Header)
	}
	for s := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			r.t.Fatalf("%v: %s", err, s)
		}
		all = append(all, l)
	}
	return all
}

// wantFrames checks that the lines are the frames of a clip with 10 frames a second, each once and in order.
func wantFrames(t *testing.T, all []line, task string, n int) {
	t.Helper()
	if len(all) != n {
		t.Fatalf("%d lines, want %d", len(all), n)
	}
	for i, l := range all {
		if l.Seq != i || l.PTS != int64(i)*100_000 || l.Task != task || l.Model != "eyes" || l.Width != 64 ||
			l.Error != nil {
			t.Fatalf("line %d: %+v", i, l)
		}
	}
}

// TestVideo: the result of a video has a line for each frame, in order and with the time of the frame, in containers
// of several kinds and from an address, and the frames add up in the metrics.
func TestVideo(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	frames := 0
	for _, c := range []struct{ name, query, form string }{
		{"clip.mp4", "", "video/mp4"}, {"clip.webm", "", "video/webm; codecs=vp9"},
		{"clip.mkv", "&kind=video", "application/octet-stream"},
	} {
		task := r.submit("model=eyes"+c.query, map[string]string{"Content-Type": c.form}, clip(t, 25, c.name))
		task = r.wait(task.ID, nil)
		wantFrames(t, r.lines(task), task.ID, 25)
		if want := (tasks.Progress{Done: 25, Total: 25, Unit: "frames"}); task.Progress != want {
			t.Errorf("%s: progress %+v, want %+v", c.name, task.Progress, want)
		}
		frames += 25
	}
	_, text := r.do("GET", "/metrics", nil, nil)
	if want := fmt.Sprintf(`millrace_frames_accepted_total{model="eyes",version="1"} %d`, frames); !strings.Contains(
		text, want+"\n") {
		t.Errorf("the metrics lack %s:\n%s", want, grep(text, "millrace_frames"))
	}
}

func grep(text, part string) string {
	var b strings.Builder
	for s := range strings.Lines(text) {
		if strings.Contains(s, part) {
			b.WriteString(s)
		}
	}
	return b.String()
}

// TestBadVideo: a video that cannot be read fails the task at the first attempt, with the reason and without the path
// of the input. A playlist is no video of a client.
func TestBadVideo(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	playlist := "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n"
	whole := clip(t, 50, "clip.mp4")
	for _, c := range []struct{ model, body, form, code, want string }{
		{"eyes", "no video", "video/mp4", "unsupported", "the video cannot be read"},
		{"eyes", whole[:len(whole)/2], "video/mp4", "invalid_argument", "cut short"},
		{"eyes", playlist, "video/mp2t", "unsupported", "hls"},
		{"eyes", "file:///etc/passwd", "text/uri-list", "permission_denied", "a request may name"},
		{"eyes", "rtsp://127.0.0.1:9/live", "text/uri-list", "unsupported", "want http or https"},
		{"eyes", "no zip", "application/zip", "invalid_argument", "no zip archive"},
	} {
		task := r.wait(r.submit("model="+c.model, map[string]string{"Content-Type": c.form}, c.body).ID, nil)
		if task.State != tasks.Failed || task.Attempt != 1 || task.Error.Code != c.code ||
			!strings.Contains(task.Error.Message, c.want) || strings.Contains(task.Error.Message, task.ID) {
			t.Errorf("%s: %s, attempt %d, %+v", c.form, task.State, task.Attempt, task.Error)
		}
	}
}

func picture(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 24)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archive returns a zip archive of files in order, as pairs of names and contents.
func archive(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPictures: the result of an archive has a line for each file, in the order of the archive, and the line of a
// file that is no picture has the error.
func TestPictures(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	var files, names []string
	for i := range 40 {
		name, data := fmt.Sprintf("b/%d.jpg", 39-i), string(picture(t))
		if i == 7 {
			name, data = "a.txt", "no picture"
		}
		names = append(names, name)
		files = append(files, name, data)
	}
	files = append([]string{"b/", ""}, files...)
	task := r.wait(r.submit("model=eyes", map[string]string{"Content-Type": "application/zip"},
		archive(t, files...)).ID, nil)
	all := r.lines(task)
	if len(all) != len(names) {
		t.Fatalf("%d lines, want %d", len(all), len(names))
	}
	for i, l := range all {
		if l.File != names[i] || l.Seq != i || (i == 7) != (l.Error != nil) || i == 7 && l.Error.Code != "unsupported" {
			t.Errorf("line %d: %+v", i, l)
		}
	}
	if want := (tasks.Progress{Done: 40, Total: 40, Unit: "pictures"}); task.Progress != want {
		t.Errorf("progress %+v, want %+v", task.Progress, want)
	}
	task = r.wait(r.submit("model=eyes&kind=pictures", nil, archive(t, "../a.jpg", string(picture(t)))).ID, nil)
	if task.State != tasks.Failed || task.Attempt != 1 || task.Error.Code != "invalid_argument" {
		t.Errorf("a path out of the archive: %+v %+v", task, task.Error)
	}
}

// until waits for a state of a task.
func (r *rig) until(id, what string, ok func(tasks.Task) bool) tasks.Task {
	r.t.Helper()
	for {
		a, text := r.do("GET", "/v2/tasks/"+id+"?wait=10ms", nil, nil)
		if a.StatusCode != 200 {
			r.t.Fatal(text)
		}
		t := r.task(text)
		if ok(t) {
			return t
		}
		if t.State.Ended() {
			r.t.Fatalf("%s before %s: %+v", t.State, what, t.Error)
		}
	}
}

// TestCancelVideo: a cancelled task leaves the server without frames in flight, and without a result.
func TestCancelVideo(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Models = append(c.Models, slowEyes)
	})
	task := r.submit("model=eyes", map[string]string{"Content-Type": "video/mp4"}, clip(t, 3000, "clip.mp4"))
	r.until(task.ID, "the first frames", func(t tasks.Task) bool { return t.Progress.Done > 3 })
	if a, text := r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	begun := time.Now()
	r.end() // ends when the task has left its slot
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the cancelled task has kept the server for %v", took)
	}
	r = start(t, r.dir, func(c *server.Config) { c.Tasks.Consume = server.Off })
	if a, _ := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil); a.StatusCode != 409 {
		t.Errorf("the result of a cancelled task: %d", a.StatusCode)
	}
}

// TestVideoAfterRestart: when the server ends in the middle of a video, the next server runs the whole video again,
// and the result has each frame once.
func TestVideoAfterRestart(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Models = append(c.Models, slowEyes)
		c.Drain = 2 * time.Second
	})
	task := r.submit("model=eyes", map[string]string{"Content-Type": "video/mp4"}, clip(t, 300, "clip.mp4"))
	r.until(task.ID, "the first frames", func(t tasks.Task) bool { return t.Progress.Done > 3 })
	r.end()
	r = start(t, r.dir, withEyes)
	task = r.wait(task.ID, nil)
	if task.Attempt != 2 {
		t.Errorf("attempt %d, want 2", task.Attempt)
	}
	wantFrames(t, r.lines(task), task.ID, 300)
}

// TestTaskBesideLiveFrames: a task pauses for a second at most between its frames while a client's frames arrive.
func TestTaskBesideLiveFrames(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.Share = .001 })
	var live sync.WaitGroup
	var failed error
	ctx, cancel := context.WithCancel(t.Context())
	live.Go(func() {
		for failed == nil && ctxio.Sleep(ctx, 20*time.Millisecond) {
			var a *http.Response
			a, failed = http.Post(r.URL("http")+"/v2/models/echo/infer", "application/json",
				strings.NewReader(jsonBody))
			if failed == nil {
				failed = a.Body.Close()
			}
		}
	})
	task := r.wait(r.submit("model=slow", map[string]string{"Content-Type": "application/zip"}, pictures(t, 4)).ID, nil)
	cancel()
	live.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	if n := len(r.lines(task)); n != 4 {
		t.Fatalf("%d lines", n)
	}
	if took := task.Ended.Sub(task.Started); took < time.Second {
		t.Errorf("a task of 4 pictures took %v beside live frames", took)
	}
}
