package streams_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/ingest/streams"
	"millrace/internal/testneeds"
)

// A damaged source or a source without video reports an error with its name, delivers its readable part, and leaves
// other streams alone.
func TestBadInput(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	dir := t.TempDir()
	file := func(name string, args ...string) []byte {
		path := filepath.Join(dir, name)
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"),
			append(append([]string{"-nostdin", "-v", "error"}, args...), path)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	moving := []string{"-f", "lavfi", "-i", "testsrc2=size=160x120:rate=10:duration=4", "-pix_fmt", "yuv420p", "-g",
		"10"}
	first := file("first.mp4", append(moving, "-movflags", "+faststart")...) // the index is at the beginning
	last := file("last.mp4", moving...)
	ts := file("whole.ts", moving...)
	write("cut-first.mp4", first[:len(first)/2])
	write("cut-last.mp4", last[:len(last)/2])
	write("cut.ts", ts[:len(ts)/2+77]) // within a packet
	write("zero.mp4", nil)
	if err := os.Mkdir(filepath.Join(dir, "folder.mp4"), 0o700); err != nil {
		t.Fatal(err)
	}
	file("sound.mp4", "-f", "lavfi", "-i", "sine=duration=1")
	file("sound.ts", "-f", "lavfi", "-i", "sine=duration=1")
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(web.Close)

	r := start(t, streams.Options{AllowPrivate: true})
	r.streams.Add(t, streams.Config{Name: "good", Source: clip(t, 2), Loop: true, Model: "eyes"})
	cases := []struct {
		source, state, says string // state and error of a file
		some                bool   // frames are read
	}{
		{"zero.mp4", "waiting", "the file is empty", false},
		{"folder.mp4", "waiting", "folder", false},
		{"missing.mp4", "waiting", "nothing at this address", false},
		{"cut-last.mp4", "waiting", "index is missing", false},
		{"cut-first.mp4", "failed", "before its end", true},
		{"cut.ts", "ended", "", true},
		{"sound.mp4", "waiting", "sound, subtitles or data only", false},
		{"sound.ts", "waiting", "sound, subtitles or data only", false},
	}
	name := func(form, source string) string { return form + "-" + strings.ReplaceAll(source, ".", "-") }
	for _, c := range cases {
		r.streams.Add(t, streams.Config{Name: name("file", c.source), Source: filepath.Join(dir, c.source),
			Model: "eyes"})
		r.streams.Add(t, streams.Config{Name: name("http", c.source), Source: web.URL + "/" + c.source, Model: "eyes"})
	}
	for _, c := range cases {
		s := r.until(name("file", c.source), c.state, func(s shown) bool {
			return s.State == c.state && (c.state == "ended" || s.Error != nil)
		})
		if c.some != (s.Frames > 0) || s.Frames > 30 || c.state == "failed" && s.Restarts != 0 {
			t.Errorf("%s: %+v", c.source, s)
		}
		if s.Error != nil && (!strings.Contains(s.Error.Message, c.says) || !strings.Contains(s.Source, c.source)) {
			t.Errorf("%s: %q of %s does not say %q and its name", c.source, s.Error.Message, s.Source, c.says)
		}
		// Over HTTP a truncated file may be a failed transfer, so the stream reads the file again.
		s = r.until(name("http", c.source), "an error", func(s shown) bool {
			return s.State == "ended" || s.Error != nil
		})
		if c.some != (s.Frames > 0) || s.Error != nil && !strings.Contains(s.Source, web.URL) {
			t.Errorf("%s over HTTP: %+v: %+v", c.source, s, s.Error)
		}
	}
	before := r.show("good")
	s := r.until("good", "results", func(s shown) bool { return s.Results > before.Results+5 })
	if s.Restarts != 0 || s.State != "running" || s.Error != nil {
		t.Errorf("%+v", s)
	}
}
