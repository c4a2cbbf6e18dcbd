package sources_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/ingest/sources"
	"millrace/internal/child"
	"millrace/internal/codec"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if child.LiveChildren() != 0 {
			fmt.Fprintln(os.Stderr, "children left:", child.LiveChildren())
			code = 1
		}
		os.Exit(code)
	}))
}

// patience is the time-out of every wait, far above any expected wait.
const patience = 60 * time.Second

// rig runs a source and records frames and failures.
type rig struct {
	*sources.Source
	t      *testing.T
	memory *buf.Pool
	cancel context.CancelCauseFunc
	over   chan struct{}
	err    error // of Run, once over is closed

	mu    sync.Mutex
	seqs  []uint64
	pts   []int64
	sizes map[string]int // sizes of results
	hold  bool           // keep the leases
	held  []*buf.Buf
}

// run starts a video with short waits.
func run(t *testing.T, v video.Options, o sources.Options) *rig {
	t.Helper()
	return runWithin(t, buf.NewPool(0), v, o)
}

// runWithin is run with a memory pool for frames.
func runWithin(t *testing.T, memory *buf.Pool, v video.Options, o sources.Options) *rig {
	t.Helper()
	if v.StallTimeout == 0 {
		v.StallTimeout = patience
	}
	if v.StartTimeout == 0 {
		v.StartTimeout = patience
	}
	o.Address = v.URL
	o.Open = func(ctx context.Context) (sources.Reader, error) {
		return sources.OpenVideo(ctx, v, sources.Env{Memory: memory})
	}
	return supervise(t, memory, o)
}

// supervise starts a source with short waits.
func supervise(t *testing.T, memory *buf.Pool, o sources.Options) *rig {
	t.Helper()
	r := &rig{t: t, memory: memory, over: make(chan struct{}), sizes: map[string]int{}}
	o.Frame = r.frame
	o.MinWait, o.MaxWait = 20*time.Millisecond, 100*time.Millisecond
	r.Source = sources.New(o)
	var ctx context.Context
	ctx, r.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(r.over)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		r.cancel(nil)
		r.wait()
		r.free()
		if st := r.memory.Stats(); st.Leases != 0 {
			t.Errorf("%d leases left", st.Leases)
		}
		if n := child.LiveChildren(); n != 0 {
			t.Errorf("%d children left", n)
		}
	})
	return r
}

func (r *rig) frame(f stream.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(f.Payload) != codec.NV12.Size(f.Width, f.Height) || f.Codec != stream.NV12 {
		r.t.Errorf("%d bytes of %v for %dx%d", len(f.Payload), f.Codec, f.Width, f.Height)
	}
	r.seqs, r.pts = append(r.seqs, f.Seq), append(r.pts, f.CaptureUS)
	r.sizes[fmt.Sprintf("%dx%d", cmp.Or(f.SourceWidth, f.Width), cmp.Or(f.SourceHeight, f.Height))]++
	if r.hold {
		r.held = append(r.held, f.Lease)
		return
	}
	f.Lease.Release()
}

func (r *rig) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.held {
		b.Release()
	}
	r.held, r.hold = nil, false
}

// wait returns the result of Run.
func (r *rig) wait() error {
	r.t.Helper()
	select {
	case <-r.over:
		return r.err
	case <-time.After(patience):
		r.t.Fatalf("Run did not return: %+v", r.Status())
		return nil
	}
}

// until waits for a status.
func (r *rig) until(what string, ok func(sources.Status) bool) sources.Status {
	r.t.Helper()
	limit := time.Now().Add(patience)
	for {
		st := r.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(limit) {
			r.t.Fatalf("not seen: %s: %+v", what, st)
		}
		select {
		case <-r.over:
			if st = r.Status(); ok(st) {
				return st
			}
			r.t.Fatalf("not seen: %s, and Run returned %v: %+v", what, r.err, st)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// frames waits for n frames more.
func (r *rig) frames(n uint64) sources.Status {
	r.t.Helper()
	from := r.Status().Frames
	return r.until(fmt.Sprintf("%d frames more", n), func(st sources.Status) bool { return st.Frames >= from+n })
}

// camera is an HTTP MJPEG camera controlled by the test.
type camera struct {
	URL    string
	side   atomic.Int32 // pixels of the picture
	silent atomic.Bool  // keeps the connection and sends nothing
	dead   atomic.Bool  // answers 503
	wait   atomic.Int64 // between pictures, in nanoseconds; 20 ms
	opened atomic.Int32
	cut    atomic.Pointer[context.CancelFunc] // breaks the connection
}

func newCamera(t *testing.T) *camera {
	c := &camera{}
	c.side.Store(64)
	c.wait.Store(int64(20 * time.Millisecond))
	srv := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	c.URL = srv.URL + "/cam.mjpg"
	return c
}

func (c *camera) serve(w http.ResponseWriter, req *http.Request) {
	if c.dead.Load() {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	c.opened.Add(1)
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	c.cut.Store(&cancel)
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
	tick := time.NewTicker(time.Duration(c.wait.Load()))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.silent.Load() {
			continue
		}
		p := picture(int(c.side.Load()))
		if _, err := fmt.Fprintf(w, "--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(p),
			p); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

var pictures sync.Map

func picture(side int) []byte {
	if p, ok := pictures.Load(side); ok {
		return p.([]byte)
	}
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for i := range side {
		img.Set(i, i, color.White)
	}
	var b bytes.Buffer
	_ = jpeg.Encode(&b, img, nil)
	pictures.Store(side, b.Bytes())
	return b.Bytes()
}

// ffmpeg makes a file in a folder of the test.
func ffmpeg(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command(testneeds.Program(t, "ffmpeg"),
		append(append([]string{"-nostdin", "-v", "error", "-y"}, args...), path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s (is ffmpeg installed? apt-get install ffmpeg)", err, out)
	}
	return path
}

func moving(seconds string) []string {
	return []string{"-f", "lavfi", "-i", "testsrc2=size=160x120:rate=10:duration=" + seconds, "-pix_fmt", "yuv420p"}
}

func wantKind(t *testing.T, err error, kind video.Kind) {
	t.Helper()
	if video.KindOf(err) != kind {
		t.Errorf("%v (%s), want %s", err, video.KindOf(err), kind)
	}
}

var errStop = errors.New("stop")
