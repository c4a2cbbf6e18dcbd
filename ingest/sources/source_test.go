package sources_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

func TestFileEnds(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", moving("2")...)
	var info sources.Info
	r := run(t, video.Options{URL: path}, sources.Options{Opened: func(i sources.Info) { info = i }})
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	st := r.Status()
	if st.State != sources.Ended || st.Frames != 20 || st.Restarts != 0 || st.Err != nil || !info.Ends {
		t.Errorf("%+v of %+v", st, info)
	}
	for i, seq := range r.seqs {
		if seq != uint64(i) || r.pts[i] != int64(i)*100_000 {
			t.Errorf("frame %d has seq %d and time %d", i, seq, r.pts[i])
		}
	}
}

func TestFileLoops(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", moving("1")...)
	r := run(t, video.Options{URL: path, Loop: true}, sources.Options{})
	st := r.frames(45)
	r.cancel(errStop)
	if err := r.wait(); err != errStop {
		t.Errorf("%v", err)
	}
	if st.Restarts != 0 || !slices.IsSorted(r.pts) {
		t.Errorf("%+v; times %v", st, r.pts)
	}
	if st := r.Status(); st.State != sources.Ended {
		t.Errorf("%+v", st)
	}
}

func TestPaced(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", moving("1")...)
	begun := time.Now()
	r := run(t, video.Options{URL: path}, sources.Options{Paced: func() bool { return true }})
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < 900*time.Millisecond {
		t.Errorf("10 frames of a tenth of a second each came within %v", d)
	}
}

// A camera stops sending, ends, returns and changes its size.
func TestCamera(t *testing.T) {
	c := newCamera(t)
	r := run(t, video.Options{URL: c.URL, StallTimeout: 300 * time.Millisecond}, sources.Options{})
	r.frames(5)

	c.silent.Store(true)
	st := r.until("stalled", func(st sources.Status) bool { return st.Restarts > 0 })
	wantKind(t, st.Err, video.Stalled)
	c.silent.Store(false)
	r.frames(5)

	c.dead.Store(true)
	(*c.cut.Load())()
	st = r.until("refused", func(st sources.Status) bool { return st.Kind == video.Refused })
	if st.State == sources.Running || st.Restarts < 2 {
		t.Errorf("%+v", st)
	}
	c.side.Store(96)
	c.dead.Store(false)
	r.frames(5)
	if r.mu.Lock(); r.sizes["64x64"] == 0 || r.sizes["96x96"] == 0 {
		t.Errorf("sizes %v", r.sizes)
	}
	r.mu.Unlock()

	// A new size within one connection is scaled to the first size.
	opened := c.opened.Load()
	c.side.Store(64)
	st = r.frames(5)
	if n := c.opened.Load(); n != opened && st.Kind != video.Stalled { // a pause of the machine
		t.Errorf("the camera was opened %d times more: %v", n-opened, st.Err)
	}
	r.cancel(errStop)
	_ = r.wait()
	for i, seq := range r.seqs {
		if seq != uint64(i) {
			t.Fatalf("frame %d has seq %d", i, seq)
		}
	}
}

// A live source is reopened after its server ends the connection.
func TestLiveEndIsAFailure(t *testing.T) {
	c := newCamera(t)
	r := run(t, video.Options{URL: c.URL}, sources.Options{})
	r.frames(2)
	(*c.cut.Load())()
	st := r.until("opened again", func(st sources.Status) bool {
		return st.Restarts == 1 && st.State == sources.Running
	})
	wantKind(t, st.Err, video.EndedEarly)
	r.frames(2)
}

func TestHLS(t *testing.T) {
	list := ffmpeg(t, "live.m3u8", append(moving("4"), "-g", "10", "-hls_time", "1", "-hls_playlist_type", "vod")...)
	srv := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(list))))
	defer srv.Close()
	r := run(t, video.Options{URL: srv.URL + "/live.m3u8"}, sources.Options{})
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if st := r.Status(); st.Frames != 40 || st.State != sources.Ended {
		t.Errorf("%+v", st)
	}
}

// A failure that probably persists is retried after the longest waits, and the error contains no password.
func TestNoVideo(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("only words"))
	}))
	defer srv.Close()
	url := strings.Replace(srv.URL, "http://", "http://me:geheim@", 1) + "/?token=geheim"
	r := run(t, video.Options{URL: url}, sources.Options{})
	st := r.until("waiting", func(st sources.Status) bool { return st.State == sources.Waiting })
	if d := st.Retry.Sub(st.Since); d < 50*time.Millisecond {
		t.Errorf("waits %v of at most 100ms", d)
	}
	wantKind(t, st.Err, video.NotVideo)
	if strings.Contains(st.Err.Error(), "geheim") {
		t.Error(st.Err)
	}
}

func TestComesLater(t *testing.T) {
	from := ffmpeg(t, "clip.mp4", moving("1")...)
	var ready = make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-ready:
			http.ServeFile(w, req, from)
		default:
			http.NotFound(w, req)
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	r := run(t, video.Options{URL: srv.URL + "/clip.mp4"}, sources.Options{})
	r.until("not found", func(st sources.Status) bool { return st.Kind == video.NotFound && st.Restarts > 1 })
	close(ready)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
}

func TestMay(t *testing.T) {
	denied := stream.Errorf(stream.PermissionDenied, "source", "not there")
	r := run(t, video.Options{URL: "http://10.0.0.1/"}, sources.Options{Allow: func(context.Context) error {
		return denied
	}})
	if err := r.wait(); !errors.Is(err, denied) || r.Status().State != sources.Failed {
		t.Errorf("%v %+v", err, r.Status())
	}
	r = run(t, video.Options{URL: "x.mp4", Width: -1}, sources.Options{})
	if err := r.wait(); err == nil || r.Status().State != sources.Failed {
		t.Errorf("%v %+v", err, r.Status())
	}
}

// Without memory frames are lost, and the source continues.
func TestMemory(t *testing.T) {
	c := newCamera(t)
	r := runWithin(t, buf.NewPool(40<<10), video.Options{URL: c.URL}, sources.Options{})
	r.mu.Lock()
	r.hold = true
	r.mu.Unlock()
	r.until("frames lost", func(st sources.Status) bool { return st.Lost > 2 })
	r.free()
	lost := r.Status().Lost
	r.frames(5)
	if st := r.Status(); st.Lost > lost+1 || st.Restarts != 0 {
		t.Errorf("%+v after %d were lost", st, lost)
	}
}

func TestCheck(t *testing.T) {
	for url, code := range map[string]stream.Code{
		"http://example.com/a": "", "rtsp://me:geheim@example.com/a": "",
		"clip.mp4": stream.PermissionDenied, "exec:cat geheim": stream.PermissionDenied,
		"/dev/video0":          stream.PermissionDenied,
		"rtmp://example.com/a": stream.PermissionDenied, "concat:geheim": stream.InvalidArgument,
		"": stream.InvalidArgument,
	} {
		err := sources.Check("source", url)
		if stream.CodeOf(err) != code {
			t.Errorf("%q: %v, want %q", url, err, code)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "source: ") || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// A source named by a request is refused finally if its address is private; the text names the setting to allow
// private addresses.
func TestPublic(t *testing.T) {
	c := newCamera(t)
	for _, url := range []string{c.URL, strings.Replace(c.URL, "127.0.0.1", "localhost", 1),
		strings.Replace(c.URL, "http", "rtsp", 1)} {
		r := run(t, video.Options{URL: url, Allow: sources.Public}, sources.Options{})
		err := r.wait()
		if stream.CodeOf(err) != stream.PermissionDenied || !strings.Contains(err.Error(), "sources.allow_private") ||
			r.Status().State != sources.Failed {
			t.Errorf("%s: %v", url, err)
		}
	}
	if n := c.opened.Load(); n != 0 {
		t.Errorf("%d pictures were asked for", n)
	}
	if err := sources.Public(netip.MustParseAddr("1.1.1.1")); err != nil {
		t.Error(err)
	}
}

// A public server that redirects to a private server is refused.
func TestPublicLeadsToPrivate(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("no second loopback address here: ", err)
	}
	var visitors atomic.Int32
	private := &http.Server{ConnState: func(net.Conn, http.ConnState) { visitors.Add(1) }, ReadHeaderTimeout: patience}
	go func() { _ = private.Serve(ln) }()
	defer private.Close()
	mux := http.NewServeMux()
	mux.Handle("/redirect", http.RedirectHandler("http://"+ln.Addr().String()+"/x.ts", http.StatusFound))
	mux.HandleFunc("/list.m3u8", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://%v/x.ts\n", ln.Addr())
	})
	public := httptest.NewServer(mux)
	defer public.Close()
	for _, path := range []string{"/redirect", "/list.m3u8"} {
		r := run(t, video.Options{URL: public.URL + path, Allow: func(a netip.Addr) error {
			if a == netip.MustParseAddr("127.0.0.1") { // treated as public
				return nil
			}
			return sources.Public(a)
		}}, sources.Options{})
		err := r.wait()
		if stream.CodeOf(err) != stream.PermissionDenied ||
			!strings.Contains(err.Error(), "127.0.0.2 is a private address: sources.allow_private "+
				"(--sources-allow-private) allows private addresses") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := visitors.Load(); n != 0 {
		t.Errorf("%d visitors", n)
	}
}
