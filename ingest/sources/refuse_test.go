package sources_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

// served starts a server with a fixed answer to every request, and returns the server's address with a password.
func served(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return secret(srv.URL)
}

func secret(url string) string {
	return strings.Replace(url, "://", "://admin:geheim@", 1) + "/a.mjpg?token=geheim"
}

// status answers with a status code.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		}
		w.WriteHeader(code)
	}
}

// body answers with some bytes of a type.
func body(mime string, b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mime)
		_, _ = w.Write(b)
	}
}

// mute sends headers and then nothing, until the client disconnects.
func mute(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
	w.(http.Flusher).Flush()
	<-q.Context().Done()
}

// drip sends a file so slowly that the first picture is never complete.
func drip(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range b {
			if _, err := w.Write(b[i : i+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-q.Context().Done():
				return
			case <-tick.C:
			}
		}
	}
}

// garbage are bytes without meaning, the same each time.
func garbage(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(b)
	return b
}

func fds(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestFailures makes sources fail in every possible way: each failure has its kind and code, contains no password, is
// retried, and leaks nothing.
func TestFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	tune, err := os.ReadFile(ffmpeg(t, "tune.wav", "-f", "lavfi", "-i", "sine=duration=1"))
	if err != nil {
		t.Fatal(err)
	}
	rng := garbage(300_000)
	for _, c := range []struct {
		name  string
		url   string
		kinds []video.Kind // one of these
		code  stream.Code  // "" = that of the kind
		wait  time.Duration
	}{
		{"wrong password", served(t, status(401)), []video.Kind{video.Auth}, stream.PermissionDenied, 0},
		{"forbidden", served(t, status(403)), []video.Kind{video.Auth}, stream.PermissionDenied, 0},
		{"not found", served(t, status(404)), []video.Kind{video.NotFound}, stream.NotFound, 0},
		{"out of order", served(t, status(503)), []video.Kind{video.Refused}, stream.Unavailable, 0},
		{"nobody listens", secret(closed), []video.Kind{video.Refused}, stream.Unavailable, 0},
		{"rtsp, nobody listens", secret(strings.Replace(closed, "http", "rtsp", 1)), []video.Kind{video.Refused},
			stream.Unavailable, 0},
		{"an empty answer", served(t, body("video/mp4", nil)), []video.Kind{video.NotVideo}, stream.Unsupported, 0},
		{"an empty stream", served(t, body("multipart/x-mixed-replace; boundary=b", nil)),
			[]video.Kind{video.NotVideo}, stream.Unsupported, 0},
		{"words", served(t, body("text/html", []byte("<html>Please log in</html>"))), []video.Kind{video.NotVideo},
			stream.Unsupported, 0},
		{"sound", served(t, body("audio/wav", tune)), []video.Kind{video.NotVideo}, stream.Unsupported, 0},
		{"garbage", served(t, body("video/mp2t", rng)), []video.Kind{video.NotVideo, video.Unsupported},
			stream.Unsupported, 0},
		{"garbage as H.264", served(t, body("video/h264", append([]byte{0, 0, 0, 1, 0x67}, rng...))),
			[]video.Kind{video.NotVideo, video.Unsupported}, stream.Unsupported, 0},
		{"headers, then nothing", served(t, mute), []video.Kind{video.Timeout}, stream.Timeout, time.Second},
		{"a byte now and then", served(t, drip(picture(64))), []video.Kind{video.Timeout}, stream.Timeout, time.Second},
		{"a program without a word", "exec:true", []video.Kind{video.NotVideo, video.EndedEarly}, "", 0},
		{"a program that fails", "exec:sh -c 'exit 3'", []video.Kind{video.EndedEarly}, stream.Unavailable, 0},
		{"no such program", "exec:/nowhere/camera", []video.Kind{video.NotFound}, stream.NotFound, 0},
		{"no such device", "/dev/video99", []video.Kind{video.NotFound}, stream.NotFound, 0},
	} {
		if testing.Short() && c.wait > 0 {
			continue // takes seconds
		}
		t.Run(c.name, func(t *testing.T) {
			before := fds(t)
			r := run(t, video.Options{URL: c.url, StartTimeout: c.wait}, sources.Options{})
			st := r.until("tried again", func(st sources.Status) bool {
				return st.Restarts > 0 && st.State == sources.Waiting
			})
			if !slices.Contains(c.kinds, st.Kind) || c.code != "" && stream.CodeOf(st.Err) != c.code {
				t.Errorf("%s %s: %v, want %v", st.Kind, stream.CodeOf(st.Err), st.Err, c.kinds)
			}
			if strings.Contains(fmt.Sprintf("%v %+v", st.Err, st), "geheim") {
				t.Errorf("tells the password: %+v", st)
			}
			r.cancel(errStop)
			if err := r.wait(); err != errStop {
				t.Error(err)
			}
			// of connections the server closes
			for limit := time.Now().Add(patience); fds(t) > before+2; <-time.After(5 * time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("%d descriptors, %d before", fds(t), before)
				}
			}
		})
	}
}

// A source stopped while waiting for an answer, a picture, or its next attempt ends at once.
func TestStopWhileItHangs(t *testing.T) {
	asked := make(chan struct{}, 100)
	url := served(t, func(w http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		mute(w, q)
	})
	r := run(t, video.Options{URL: url}, sources.Options{})
	<-asked
	r.cancel(errStop)
	if err := r.wait(); err != errStop {
		t.Error(err)
	}
	r = run(t, video.Options{URL: "exec:sleep 1000"}, sources.Options{})
	r.cancel(errStop)
	if err := r.wait(); err != errStop {
		t.Error(err)
	}
}
