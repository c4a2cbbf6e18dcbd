package video

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// An address with a single picture is requested repeatedly. Two consecutive requests may fail; the third failure ends
// the source.
func TestPoll(t *testing.T) {
	list := pictures(t, 3)
	var requests, unchanged atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "viewer" || password != "geheim" {
			w.Header().Set("WWW-Authenticate", `Basic realm="cam"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		n := int(requests.Add(1))
		switch {
		case n == 3 || n == 4 || n > 8:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case r.Header.Get("If-None-Match") == `"same"` && n == 7:
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", "image/jpg")
		w.Header().Set("ETag", `"same"`)
		_, _ = w.Write(list[n%3])
	}))
	defer s.Close()
	address := strings.Replace(s.URL, "//", "//viewer:geheim@", 1)
	times, err := timesOf(t, Options{URL: address, Poll: 20 * time.Millisecond})
	if KindOf(err) != Refused || !strings.Contains(err.Error(), "503") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("ended with %v", err)
	}
	if len(times) != 6 || unchanged.Load() != 1 || requests.Load() != 11 {
		t.Errorf("%d frames of %d requests, %d of them unchanged", len(times), requests.Load(), unchanged.Load())
	}
	for i := 1; i < len(times); i++ {
		if times[i] <= times[i-1] {
			t.Errorf("times %v", times)
		}
	}
	for address, want := range map[string]Kind{s.URL: Auth, "http://127.0.0.1:1/": Refused} {
		if _, err := timesOf(t, Options{URL: address, Poll: time.Second}); KindOf(err) != want {
			t.Errorf("%s: %v; want %s", address, err, want)
		}
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	if _, err := timesOf(t, Options{URL: page.URL, Poll: time.Second}); KindOf(err) != NotFound {
		t.Error(err)
	}
}

// TestPollWithoutEndMarker: a picture without the end marker of JPEG is read.
func TestPollWithoutEndMarker(t *testing.T) {
	picture := pictures(t, 1)[0]
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) > 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(picture[:len(picture)-2])
	}))
	defer s.Close()
	times, err := timesOf(t, Options{URL: s.URL, Poll: 20 * time.Millisecond})
	if KindOf(err) != Refused || len(times) != 2 {
		t.Errorf("%d frames, ended with %v", len(times), err)
	}
}
