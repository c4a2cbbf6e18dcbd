package tasks_test

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// video returns the path of a video, made by ffmpeg with these arguments.
func video(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args = append(append([]string{"-loglevel", "error"}, args...), path)
	if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// moving are the arguments for 20 pictures of a white rectangle that moves over a blue ground.
func moving(size string, more ...string) []string {
	return append([]string{"-f", "lavfi", "-i", "color=0x205090:s=" + size + ":r=10[a];color=white:s=40x30:r=10[b];" +
		"[a][b]overlay=x=20+8*n:y=100", "-frames:v", "20", "-pix_fmt", "yuv420p"}, more...)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// annotated runs a video as a task, and returns the path of the annotated video.
func (r *rig) annotated(path string) string {
	r.t.Helper()
	task := r.wait(r.submit("model=eyes&annotate=mp4", map[string]string{"Content-Type": "video/mp4"},
		read(r.t, path)).ID, nil)
	if task.State != tasks.Finished {
		r.t.Fatalf("the task is %s: %+v", task.State, task.Error)
	}
	if n := task.Progress; n.Done != 20 || n.Unit != "frames" {
		r.t.Errorf("the progress: %+v", n)
	}
	a, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil)
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "video/mp4" || int64(len(text)) != task.Result.Size {
		r.t.Fatalf("the result: %d %v", a.StatusCode, a.Header)
	}
	out := filepath.Join(r.t.TempDir(), "annotated.mp4")
	if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// probe returns values of a video by ffprobe, one a line.
func probe(t *testing.T, path, entries string) []string {
	t.Helper()
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-select_streams", "v", "-show_entries",
		entries, "-of", "default=nw=1:nk=1", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Fields(string(out))
}

// times returns the times of the frames of a video in seconds.
func times(t *testing.T, path string) (all []float64) {
	t.Helper()
	for _, text := range probe(t, path, "frame=pts_time") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// TestAnnotate: the annotated video decodes without an error, has each frame of the input once at its time, upright,
// with the size (even sides) and the shape of the pixels, and can be played while it arrives.
func TestAnnotate(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	plain := video(t, "plain.mp4", moving("320x240")...)
	for _, c := range []struct{ name, path, want string }{
		{"plain", plain, "h264 320 240 1:1 yuv420p tv bt709"},
		{"odd sides", video(t, "odd.mkv", moving("640x480", "-vf", "format=yuv444p,crop=321:241:exact=1",
			"-pix_fmt", "yuv444p")...),
			"h264 322 242 1:1 yuv420p tv bt709"},
		{"variable rate", video(t, "variable.mp4", moving("320x240", "-vf",
			"setpts='(N*0.1+if(gt(N,7),1.234567)+if(gt(N,12),0.011))/TB'", "-fps_mode", "passthrough",
			"-video_track_timescale", "90000")...), "h264 320 240 1:1 yuv420p tv bt709"},
		{"29.97 a second", video(t, "ntsc.mp4", moving("320x240", "-vf", "setpts=N*1001/30000/TB", "-r",
			"30000/1001")...), "h264 320 240 1:1 yuv420p tv bt709"},
		{"rotated", video(t, "rotated.mp4", "-i", plain, "-c", "copy", "-metadata:s:v", "rotate=90"),
			"h264 240 320 1:1 yuv420p tv bt709"},
		{"wide pixels", video(t, "wide.mp4", moving("320x240", "-vf", "setsar=64/45")...),
			"h264 320 240 64:45 yuv420p tv bt709"},
	} {
		out := r.annotated(c.path)
		said, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "warning", "-i", out, "-f", "null",
			"-").CombinedOutput()
		if err != nil || len(said) > 0 {
			t.Errorf("%s: %v: %s", c.name, err, said)
		}
		if got := strings.Join(probe(t, out,
			"stream=codec_name,width,height,sample_aspect_ratio,pix_fmt,color_range,color_space"), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		got, want := times(t, out), times(t, c.path)
		if len(got) != 20 || len(want) != 20 {
			t.Fatalf("%s: %d frames, want %d, 20", c.name, len(got), len(want))
		}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 12e-6+1e-6 { // a tick of the video
				t.Errorf("%s: frame %d is at %f, want %f", c.name, i, got[i], want[i])
			}
		}
		if order := boxes(read(t, out)); order != "ftyp moov free mdat" {
			t.Errorf("%s: the boxes are %s", c.name, order)
		}
	}
}

// TestAnnotatedPictures: the record of a task that no submission makes, such as from an archive, ends with an error.
func TestAnnotatedPictures(t *testing.T) {
	dir := t.TempDir()
	d, err := tasks.OpenData(t.Context(), dir, false, tasks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	task, _, err := d.Submit(t.Context(), tasks.Submission{
		Task: tasks.Task{Model: "eyes", Annotate: "mp4", Input: tasks.File{Type: "application/zip"}},
		Data: func(w blob.Writer) error {
			z := zip.NewWriter(w)
			f, err := z.Create("0.jpg")
			if err == nil {
				_, err = io.WriteString(f, "no picture")
			}
			return errors.Join(err, z.Close())
		}})
	d.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, withEyes)
	got := r.wait(task.ID, nil)
	if got.State != tasks.Failed || got.Error.Code != "invalid_argument" {
		t.Errorf("the task is %s: %+v", got.State, got.Error)
	}
}

// boxes returns the names of the outermost boxes of an MP4.
func boxes(mp4 string) string {
	var names []string
	for len(mp4) >= 8 {
		n := int(binary.BigEndian.Uint32([]byte(mp4)))
		names = append(names, mp4[4:8])
		mp4 = mp4[min(max(n, 8), len(mp4)):]
	}
	return strings.Join(names, " ")
}

// pixels are the frames of a video, as RGB.
type pixels struct {
	all           []byte
	width, height int
}

func decode(t *testing.T, path string, width, height int) pixels {
	t.Helper()
	all, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-i", path, "-fps_mode", "passthrough",
		"-f", "rawvideo", "-pix_fmt", "rgb24", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	return pixels{all, width, height}
}

func (p pixels) at(frame, x, y int) [3]int {
	b := p.all[3*((frame*p.height+y)*p.width+x):]
	return [3]int{int(b[0]), int(b[1]), int(b[2])}
}

// yellow reports whether a pixel near x, y has the colour of boxes.
func (p pixels) yellow(frame, x, y int) bool {
	for dx := -3; dx <= 3; dx++ {
		if c := p.at(frame, x+dx, y); c[0] > 180 && c[1] > 130 && c[2] < 120 {
			return true
		}
	}
	return false
}

// TestAnnotateBoxes: the boxes of the lines are drawn in their frames, and the rest of a frame is as in the input.
func TestAnnotateBoxes(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	path := video(t, "plain.mp4", moving("320x240")...)
	input, out := decode(t, path, 320, 240), decode(t, r.annotated(path), 320, 240)
	task := r.wait(r.submit("model=eyes", map[string]string{"Content-Type": "video/mp4"}, read(t, path)).ID, nil)
	_, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil)
	drawn := 0
	for s := range strings.Lines(text) {
		var l struct {
			Seq     int `json:"seq"`
			Outputs []struct {
				Name string    `json:"name"`
				Data []float64 `json:"data"`
			} `json:"outputs"`
		}
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			t.Fatal(err)
		}
		for c, want := range input.at(l.Seq, 300, 20) {
			if got := out.at(l.Seq, 300, 20)[c]; max(got-want, want-got) > 6 {
				t.Errorf("frame %d: the ground is %v, want %v", l.Seq, out.at(l.Seq, 300, 20), input.at(l.Seq, 300, 20))
				break
			}
		}
		for _, o := range l.Outputs {
			if o.Name != "boxes" || len(o.Data) < 4 {
				continue
			}
			x, y := int(o.Data[0]), int(o.Data[1]+o.Data[3])/2
			if input.yellow(l.Seq, x, y) || !out.yellow(l.Seq, x, y) {
				t.Errorf("frame %d: no box at %d, %d: %v", l.Seq, x, y, out.at(l.Seq, x, y))
			}
			drawn++
		}
	}
	if drawn < 5 {
		t.Errorf("%d frames have boxes", drawn)
	}
}

// TestAnnotateRefused: a submission is refused with the name of the option when the input is no video, or the model
// has no results to draw; a model that is loaded later fails the task.
func TestAnnotateRefused(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	for _, c := range []struct{ query, form, want string }{
		{"model=eyes&annotate=gif", "video/mp4", "there is mp4"},
		{"model=eyes&annotate=mp4", "application/json", "is for videos"},
		{"model=eyes&annotate=mp4&kind=pictures", "video/mp4", "is for videos"},
		{"model=echo&annotate=mp4", "video/mp4", "model echo has no output that can be drawn"},
	} {
		a, text := r.do("POST", "/v2/tasks?"+c.query, map[string]string{"Content-Type": c.form}, strings.NewReader("x"))
		if a.StatusCode != 400 && a.StatusCode != 415 || !strings.Contains(text, c.want) ||
			!strings.Contains(text, "annotate") {
			t.Errorf("%s: %d %s", c.query, a.StatusCode, text)
		}
	}
	a, text := r.tus("POST", "/v2/uploads", nil, nil, "Upload-Length", "5", "Upload-Metadata",
		metadata("model", "eyes", "annotate", "mp4", "filetype", "application/zip"))
	if a.StatusCode != 400 || !strings.Contains(text, "is for videos") {
		t.Errorf("an upload: %d %s", a.StatusCode, text)
	}
	r.end()
	r = start(t, r.dir, func(c *server.Config) { c.Tasks.Consume = server.Off })
	task := r.submit("model=echo&annotate=mp4", map[string]string{"Content-Type": "video/mp4"}, clip(t, 5, "c.mp4"))
	r.end()
	r = start(t, r.dir, nil)
	task = r.wait(task.ID, nil)
	if task.State != tasks.Failed || task.Attempt != 1 || !strings.Contains(task.Error.Message, "annotate") {
		t.Errorf("%s, attempt %d, %+v", task.State, task.Attempt, task.Error)
	}
	r.nothingLeft()
}

// TestAnnotateLarge: a small file with large pictures is refused before the encoder takes memory for the pictures.
func TestAnnotateLarge(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	path := video(t, "large.mp4", "-f", "lavfi", "-i", "color=black:s=4096x2320:r=1", "-frames:v", "1", "-preset",
		"ultrafast", "-pix_fmt", "yuv420p")
	task := r.wait(r.submit("model=eyes&annotate=mp4", map[string]string{"Content-Type": "video/mp4"},
		read(t, path)).ID, nil)
	if task.State != tasks.Failed || task.Attempt != 1 ||
		!strings.Contains(task.Error.Message, "annotate: the pictures have 4096x2320") {
		t.Errorf("%s, attempt %d, %+v", task.State, task.Attempt, task.Error)
	}
	r.nothingLeft()
}

// nothingLeft checks that a server that has ended left no encoder and no unfinished file.
func (r *rig) nothingLeft() {
	r.t.Helper()
	r.end()
	left, err := os.ReadDir(filepath.Join(r.dir, "files", ".writing"))
	if err != nil || len(left) > 0 {
		r.t.Errorf("unfinished files: %v, %v", left, err)
	}
	if n := child.LiveChildren(); n != 0 {
		r.t.Errorf("%d children run", n)
	}
}

// TestAnnotateCancel: a cancelled task leaves no encoder, no file and no result.
func TestAnnotateCancel(t *testing.T) {
	r := start(t, t.TempDir(), withEyes)
	task := r.submit("model=eyes&annotate=mp4", map[string]string{"Content-Type": "video/mp4"},
		clip(t, 30000, "clip.mp4"))
	r.until(task.ID, "the first frames", func(t tasks.Task) bool { return t.Progress.Done > 3 })
	if a, text := r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	r.nothingLeft()
	results, err := filepath.Glob(filepath.Join(r.dir, "files", "*", task.ID, "result*"))
	if err != nil || len(results) > 0 {
		t.Errorf("results: %v, %v", results, err)
	}
}

// TestAnnotateWithoutEncoder: an ffmpeg without an encoder of H.264 fails the task at the first attempt, and a damaged
// video leaves nothing.
func TestAnnotateFailures(t *testing.T) {
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), fmt.Sprintf(`#!/bin/sh
case "$*" in *libx264*) echo "Unknown encoder 'libx264'" >&2; exit 1;; esac
exec %s "$@"
`, testneeds.Program(t, "ffmpeg")))
	whole := clip(t, 50, "clip.mp4")
	r := start(t, t.TempDir(), withEyes)
	task := r.wait(r.submit("model=eyes&annotate=mp4", map[string]string{"Content-Type": "video/mp4"},
		whole[:len(whole)/2]).ID, nil)
	if task.State != tasks.Failed || !strings.Contains(task.Error.Message, "cut short") {
		t.Errorf("half a video: %s %+v", task.State, task.Error)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	task = r.wait(r.submit("model=eyes&annotate=mp4", map[string]string{"Content-Type": "video/mp4"}, whole).ID, nil)
	if task.State != tasks.Failed || task.Attempt != 1 || !strings.Contains(task.Error.Message, "annotate") ||
		!strings.Contains(task.Error.Message, "libx264") || strings.Contains(task.Error.Message, r.dir) {
		t.Errorf("without an encoder: %s, attempt %d, %+v", task.State, task.Attempt, task.Error)
	}
	r.nothingLeft()
}
