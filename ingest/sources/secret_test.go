package sources_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
)

// processWatcher searches the command lines and environments of all our ffmpegs and
// ffprobes for the password, all the time.
type processWatcher struct {
	mu    sync.Mutex
	seen  map[string]bool // programs
	leaks []string        // where the password stood
	stop  chan struct{}
	over  chan struct{}
}

func watchProcesses(t *testing.T) *processWatcher {
	t.Helper()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("no /proc here: ", err)
	}
	s := &processWatcher{seen: map[string]bool{}, stop: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(s.over)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			s.look()
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return s
}

func (s *processWatcher) look() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	ours := fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status")
		name, _, _ := strings.Cut(strings.TrimPrefix(string(status), "Name:\t"), "\n")
		if name != "ffmpeg" && name != "ffprobe" || !bytes.Contains(status, []byte(ours)) {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(dir + "/" + file)
			if err != nil || len(b) == 0 {
				continue // the process has just begun or ended
			}
			s.mu.Lock()
			s.seen[name+" "+file] = true
			if bytes.Contains(b, []byte("geheim")) {
				s.leaks = append(s.leaks, name+" "+file+": "+string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
			}
			s.mu.Unlock()
		}
	}
}

// report ends the watch; at least one process must have been seen.
func (s *processWatcher) report(t *testing.T) {
	t.Helper()
	close(s.stop)
	<-s.over
	s.mu.Lock()
	defer s.mu.Unlock()
	// ffprobe would be a second connection
	if len(s.seen) != 2 || !s.seen["ffmpeg cmdline"] || !s.seen["ffmpeg environ"] {
		t.Errorf("seen %v", s.seen)
	}
	if len(s.leaks) > 0 {
		t.Errorf("a password was told %d times, first: %s", len(s.leaks), s.leaks[0])
	}
}

// asked makes a handler demand a password, and a processWatcher watch the clients.
func asked(by *atomic.Pointer[processWatcher], h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if s := by.Load(); s != nil {
			s.look()
		}
		if user, password, _ := q.BasicAuth(); user != "admin" || password != "geheim" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, q)
	})
}

func anywhere(netip.Addr) error { return nil }

// Passwords and tokens of sources are never visible to other users of the machine, and give access to the sources.
func TestSecretsStaySecret(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	c := newCamera(t)
	list := ffmpeg(t, "list.m3u8", append(moving("20"), "-g", "10", "-hls_time", "1", "-hls_playlist_type", "vod")...)
	mux := http.NewServeMux()
	mux.HandleFunc("/a.mjpg", func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("token") != "geheim" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		c.serve(w, q)
	})
	mux.Handle("/", http.FileServer(http.Dir(filepath.Dir(list))))
	var by atomic.Pointer[processWatcher]
	plain, secure := httptest.NewServer(asked(&by, mux)), httptest.NewTLSServer(asked(&by, mux))
	t.Cleanup(func() {
		for _, s := range []*httptest.Server{plain, secure} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	hls := func(url string) string { return strings.Replace(url, "://", "://admin:geheim@", 1) + "/list.m3u8" }
	for name, o := range map[string]video.Options{
		"http":              {URL: secret(plain.URL)},
		"https":             {URL: secret(secure.URL)},
		"hls":               {URL: hls(plain.URL)},
		"hls, https":        {URL: hls(secure.URL)},
		"http, checked":     {URL: secret(plain.URL), Allow: anywhere},
		"https, checked":    {URL: secret(secure.URL), Allow: anywhere},
		"hls, https, check": {URL: hls(secure.URL), Allow: anywhere},
	} {
		t.Run(name, func(t *testing.T) {
			s := watchProcesses(t)
			by.Store(s)
			r := run(t, o, sources.Options{})
			r.frames(10)
			r.cancel(errStop)
			_ = r.wait()
			s.report(t)
		})
	}
}

func TestSecretsStaySecretOverRTSP(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for FFmpeg and its time-outs")
	}
	addr, _ := videotest.RTSP(t, "admin", "geheim")
	url := "rtsp://admin:geheim@" + addr
	for name, o := range map[string]video.Options{
		"tcp":     {URL: url},
		"udp":     {URL: url, InputArgs: []string{"-rtsp_transport", "udp"}},
		"checked": {URL: url, Allow: anywhere},
	} {
		t.Run(name, func(t *testing.T) {
			s := watchProcesses(t)
			r := run(t, o, sources.Options{})
			st := r.frames(14) // enough to measure the rate without the first 3, whose times are uncertain
			if st.Info.Width != 160 || st.Info.FPS != 15 || st.Info.Codec != "mjpeg" {
				t.Errorf("%+v", st.Info)
			}
			r.cancel(errStop)
			_ = r.wait()
			s.report(t)
		})
	}
	// The server dies under the stream.
	addr, stop := videotest.RTSP(t, "admin", "geheim")
	for _, allow := range []func(netip.Addr) error{nil, anywhere} {
		r := run(t, video.Options{URL: "rtsp://admin:geheim@" + addr, StallTimeout: 2 * time.Second, Allow: allow},
			sources.Options{})
		if allow == nil {
			r.frames(5)
			stop()
		}
		st := r.until("refused", func(st sources.Status) bool { return st.Kind == video.Refused })
		if !strings.Contains(st.Err.Error(), "nothing accepts connections at this port") ||
			strings.Contains(st.Err.Error(), "geheim") {
			t.Error(st.Err)
		}
		r.cancel(errStop)
		_ = r.wait()
	}
}
