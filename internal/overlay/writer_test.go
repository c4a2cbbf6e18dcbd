package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// write writes n pictures at odd times, each with a different brightness.
func write(w *Writer, width, height, n int) error {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range n {
		c := uint8(20 + 200*i/n)
		for p := range img.Pix {
			img.Pix[p] = c
		}
		if err := w.Write(img, at(i)); err != nil {
			return err
		}
	}
	return nil
}

// at leaves a gap after the fourth picture.
func at(i int) time.Duration {
	d := time.Duration(i) * 40 * time.Millisecond
	if i > 4 {
		d += time.Second + 10*time.Millisecond
	}
	return d
}

// checkFiles checks that dir holds only the wanted files, and that no child runs.
func checkFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != len(want) {
		t.Errorf("%v, %v; want %v", list, err, want)
	}
	if n := child.LiveChildren(); n != 0 {
		t.Errorf("%d children run", n)
	}
}

func TestWriter(t *testing.T) {
	for _, ext := range []string{".mp4", ".mkv", ".webm", ".gif"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "x y"+ext)
		w, err := NewWriter(t.Context(), file, 65, 43, 25)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(write(w, 65, 43, 12), w.Close(), w.Close()); err != nil {
			t.Fatalf("%s: %v", ext, err)
		}
		checkFiles(t, dir, file)
		out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-select_streams", "v",
			"-show_entries", "frame=pts_time", "-of", "csv=p=0", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		times := strings.Fields(string(out))
		if len(times) != 12 {
			t.Fatalf("%s: %d pictures: %v", ext, len(times), times)
		}
		for i, s := range times {
			var sec float64
			_, _ = fmt.Sscanf(s, "%f", &sec)
			if d := time.Duration(sec*1e9) - at(i); d.Abs() > time.Millisecond+time.Microsecond {
				t.Errorf("%s: picture %d is at %s, want %v", ext, i, s, at(i))
			}
		}
	}
	// The pixels read are the pixels written.
	file := filepath.Join(t.TempDir(), "x.mp4")
	w, err := NewWriter(t.Context(), file, 64, 48, 25)
	if err != nil {
		t.Fatal(err)
	}
	img := image.NewRGBA(image.Rect(0, 0, 64, 48))
	for i := range 64 * 48 {
		img.SetRGBA(i%64, i/64, color.RGBA{230, 30, 40, 255})
	}
	if err := errors.Join(w.Write(img, 0), w.Close()); err != nil {
		t.Fatal(err)
	}
	pix, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-i", file, "-f", "rawvideo", "-pix_fmt",
		"rgb24", "-").Output()
	if err != nil || len(pix) != 64*48*3 || pix[0] < 200 || pix[1] > 60 || pix[2] > 70 {
		t.Errorf("%d bytes, %v, %v", len(pix), pix[:3], err)
	}
}

func TestWriterHasNoSecrets(t *testing.T) {
	t.Setenv("MILLRACE_API_KEY", "planted")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "planted")
	w, err := NewWriter(t.Context(), filepath.Join(t.TempDir(), "x.mkv"), 256, 256, 25)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Cancel()
	// The kernel shows no variables while ffmpeg is starting. ffmpeg runs when it has read more than a pipe holds.
	if err := write(w, 256, 256, 1); err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.ffmpeg.Pid()))
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	if vars := strings.Split(string(env), "\x00"); strings.Contains(string(env), "planted") ||
		!slices.Contains(vars, "LC_ALL=C") {
		t.Errorf("%q", vars)
	}
}

func TestWriterFailures(t *testing.T) {
	dir := t.TempDir()
	for want, make := range map[string]func() (*Writer, error){
		"x.avi: want a name that ends in": func() (*Writer, error) { return NewWriter(t.Context(), "x.avi", 4, 4, 1) },
		"a video of 0x4":                  func() (*Writer, error) { return NewWriter(t.Context(), "x.mp4", 0, 4, 1) },
		"none/x.mp4 cannot be written": func() (*Writer, error) {
			return NewWriter(t.Context(), filepath.Join(dir, "none", "x.mp4"), 4, 4, 1)
		},
		"apt-get install ffmpeg": func() (*Writer, error) {
			return newWriter(t.Context(), "no-such-ffmpeg", filepath.Join(dir, "x.mp4"), 4, 4, 1)
		},
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	checkFiles(t, dir)

	start := func(ctx context.Context, program string) *Writer {
		t.Helper()
		w, err := newWriter(ctx, program, filepath.Join(dir, "x.mp4"), 640, 480, 25)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	// Pictures of the wrong size or time are refused, and the video goes on.
	w := start(t.Context(), testneeds.Program(t, "ffmpeg"))
	if err := w.Write(image.NewRGBA(image.Rect(0, 0, 3, 3)), 0); err == nil {
		t.Error("a picture of another size was taken")
	}
	img := image.NewRGBA(image.Rect(0, 0, 640, 480))
	if err := errors.Join(w.Write(img, 0), w.Write(img, time.Second)); err != nil {
		t.Error(err)
	}
	if err := w.Write(img, time.Second); err == nil || !strings.Contains(err.Error(), "times must rise") {
		t.Errorf("got %v", err)
	}
	w.Cancel()
	checkFiles(t, dir)

	w = start(t.Context(), testneeds.Program(t, "ffmpeg"))
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "no picture") {
		t.Errorf("got %v", err)
	}
	checkFiles(t, dir)

	// ffmpeg is killed from outside.
	w = start(t.Context(), testneeds.Program(t, "ffmpeg"))
	if err := write(w, 640, 480, 3); err != nil {
		t.Error(err)
	}
	_ = w.ffmpeg.Signal(syscall.SIGKILL)
	_ = w.ffmpeg.Wait()
	if err := w.Write(img, time.Hour); err == nil {
		t.Error("a dead ffmpeg takes pictures")
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "signal 9") {
		t.Errorf("got %v", err)
	}
	checkFiles(t, dir)

	// The context ends while ffmpeg works.
	ctx, cancel := context.WithCancel(t.Context())
	w = start(ctx, testneeds.Program(t, "ffmpeg"))
	if err := write(w, 640, 480, 3); err != nil {
		t.Error(err)
	}
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	checkFiles(t, dir)

	// The error has ffmpeg's message: there is no encoder of this name.
	real := encodings[".mp4"]
	encodings[".mp4"] = "-c:v nothing264 -f mp4"
	defer func() { encodings[".mp4"] = real }()
	w = start(t.Context(), testneeds.Program(t, "ffmpeg"))
	_ = write(w, 640, 480, 3)
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "Unknown encoder 'nothing264'") {
		t.Errorf("got %v", err)
	}
	checkFiles(t, dir)
}

// TestMP4: the video of a server is in the file of the caller, also after a failure. A failure has the message of
// ffmpeg without the path.
func TestMP4(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "result")
	start := func(ctx context.Context) *Writer {
		t.Helper()
		if err := os.WriteFile(file, []byte("replaced"), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := NewMP4(ctx, file, Options{Width: 65, Height: 43, FPS: 25, Sandbox: child.SandboxError() == nil})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := start(t.Context())
	if err := errors.Join(write(w, 65, 43, 12), w.Close()); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, dir, file)
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-count_frames", "-show_entries",
		"stream=codec_name,width,height,nb_read_frames", "-of", "csv=p=0", file).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "h264,66,44,12" {
		t.Errorf("%v: %s", err, out)
	}

	ctx, cancel := context.WithCancel(t.Context())
	w = start(ctx)
	cancel()
	_ = write(w, 65, 43, 12)
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	checkFiles(t, dir, file)

	for message, want := range map[string]error{
		"Unknown encoder 'libx264'": ErrNoEncoder, "$last: No space left on device": syscall.ENOSPC, "$last: any": nil,
	} {
		fakeFFmpeg(t, `for last; do :; done; echo "`+message+`" >&2; exit 1`)
		w = start(t.Context())
		_ = write(w, 65, 43, 12)
		err := w.Close()
		if err == nil || strings.Contains(err.Error(), dir) || want != nil && !errors.Is(err, want) ||
			!strings.Contains(err.Error(), strings.TrimPrefix(message, "$last")) {
			t.Errorf("%s: got %v", message, err)
		}
	}
	checkFiles(t, dir, file)
}

// fakeFFmpeg lets a script be ffmpeg.
func fakeFFmpeg(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), "#!/bin/sh\n"+script+"\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestMP4Confined: the encoder of a server reaches no file but the video.
func TestMP4Confined(t *testing.T) {
	videotest.NeedSandbox(t)
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "result"), filepath.Join(dir, "secret")
	for _, name := range []string{file, secret} {
		if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fakeFFmpeg(t, `exec 2>&-; for last; do :; done; { cat "`+secret+`" && echo read; echo x >"`+secret+
		`2" && echo written; echo end; } >"${last#file:}"; cat >/dev/null`)
	w, err := NewMP4(t.Context(), file, Options{Width: 64, Height: 48, Sandbox: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(w, 64, 48, 1), w.Close()); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, dir, file, secret)
	if b, err := os.ReadFile(file); err != nil || string(b) != "end\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestMatroskaIDs(t *testing.T) {
	if got := appendID(nil, idEBML); !bytes.Equal(got, []byte{0x1A, 0x45, 0xDF, 0xA3}) {
		t.Errorf("% x", got)
	}
	if got := appendID(nil, idTime); !bytes.Equal(got, []byte{0xE7}) {
		t.Errorf("% x", got)
	}
}
