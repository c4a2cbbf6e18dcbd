package streams_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/video/videotest"
	"millrace/stream"
)

// Old pictures kept by a camera reach the model only in mode Every. In mode Latest the server reads, counts and drops
// old pictures, and first answers the newest picture.
func TestOldFramesOfACamera(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a camera")
	}
	const old = 60
	// On a busy machine, pictures arrive as slowly as from a camera without old pictures.
	var n int
	var drops uint64
	for range 4 {
		// a subtest, so that everything started ends with the subtest
		t.Run("camera", func(t *testing.T) { n, drops = oldFrames(t, old) })
		if n >= old/2 && drops >= uint64(n) {
			return
		}
	}
	t.Errorf("the first frame in latest: %d, after %d drops", n, drops)
}

// oldFrames reads a camera that has kept old pictures. oldFrames returns the number of the first frame answered in
// mode Latest and the number of superseded frames.
func oldFrames(t *testing.T, old int) (first int, drops uint64) {
	t.Helper()
	clip := filepath.Join(t.TempDir(), "numbered.mp4")
	if err := videotest.Numbered(clip, 320, 64, 150, 10, 0); err != nil {
		t.Fatal(err)
	}
	camera := videotest.RunCamera(t, clip)
	held := "rtsp://" + videotest.Hold(t, camera.Addr, old)
	dir := t.TempDir()
	r := start(t, streams.Options{AllowPrivate: true, Streams: []streams.Config{
		{Name: "latest", Source: held, Model: "eyes", Sinks: []sinks.Settings{&sinks.File{Path: dir + "/latest"}}},
		{Name: "every", Source: held, Model: "eyes", Policy: stream.Policy{Mode: stream.Every},
			Sinks: []sinks.Settings{&sinks.File{Path: dir + "/every"}}},
	}})
	for _, name := range []string{"latest", "every"} {
		r.until(name, "results", func(s shown) bool { return s.Frames > 2*uint64(old) && s.Results > 0 })
	}
	firstOf := func(name string) int {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var line struct{ Seq int }
		s := bufio.NewScanner(f)
		if !s.Scan() {
			t.Fatalf("%s has no line: %v", name, s.Err())
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line.Seq
	}
	if n := firstOf("every"); n != 0 {
		t.Errorf("the first frame in every: %d", n)
	}
	if n := camera.Clients(); n != 1 {
		t.Errorf("%d connections", n)
	}
	return firstOf("latest"), r.show("latest").Drops["superseded"]
}
