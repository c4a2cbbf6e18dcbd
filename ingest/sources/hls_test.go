package sources_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/testneeds"
	"millrace/internal/video"
)

// broadcast is a live HLS playlist; ffmpeg continuously appends segments and removes old segments.
type broadcast struct {
	URL    string
	newest atomic.Int64 // number of the newest fetched segment
	t      *testing.T
	dir    string
	writer *exec.Cmd
}

func newBroadcast(t *testing.T) *broadcast {
	b := &broadcast{t: t, dir: t.TempDir()}
	files := http.FileServer(http.Dir(b.dir))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if name, ok := strings.CutSuffix(q.URL.Path, ".ts"); ok {
			n, _ := strconv.ParseInt(strings.TrimPrefix(name, "/live"), 10, 64)
			b.newest.Store(max(n, b.newest.Load()))
		}
		files.ServeHTTP(w, q)
	}))
	t.Cleanup(srv.Close)
	b.URL = srv.URL + "/live.m3u8"
	b.begin()
	t.Cleanup(func() { b.kill() })
	return b
}

// begin starts a writer, from segment 0.
func (b *broadcast) begin() {
	b.t.Helper()
	b.writer = exec.Command(testneeds.Program(b.t, "ffmpeg"), "-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i",
		"testsrc2=size=160x120:rate=10",
		"-pix_fmt", "yuv420p", "-preset", "ultrafast", "-g", "10", "-f", "hls", "-hls_time", "1", "-hls_list_size",
		"4", "-hls_flags", "delete_segments",
		filepath.Join(b.dir, "live.m3u8"))
	if err := b.writer.Start(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broadcast) kill() {
	_ = b.writer.Process.Kill()
	_ = b.writer.Wait()
}

func (b *broadcast) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.writer.Process.Signal(sig); err != nil {
		b.t.Fatal(err)
	}
}

// A live playlist is at first missing, then runs, stops, continues, and restarts.
func TestLiveHLS(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	b := newBroadcast(t)
	r := run(t, video.Options{URL: b.URL, StallTimeout: 3 * time.Second}, sources.Options{})
	st := r.frames(30)
	if st.Info.Width != 160 || st.Info.Ends {
		t.Errorf("%+v", st.Info)
	}

	b.signal(syscall.SIGSTOP)
	from := st.Restarts
	r.until("stalled", func(st sources.Status) bool { return st.Restarts > from && st.Kind == video.Stalled })
	b.signal(syscall.SIGCONT)
	before := b.newest.Load()
	r.until("a newer segment", func(sources.Status) bool { return b.newest.Load() > before })
	r.until("running", func(st sources.Status) bool { return st.State == sources.Running })
	r.frames(10)

	b.kill()
	from = r.Status().Restarts
	r.until("stalled again", func(st sources.Status) bool { return st.Restarts > from })
	b.newest.Store(-1)
	b.begin()
	r.until("segments of the new writer", func(sources.Status) bool { return b.newest.Load() >= 2 })
	r.until("running", func(st sources.Status) bool { return st.State == sources.Running })
	r.frames(10)
}
