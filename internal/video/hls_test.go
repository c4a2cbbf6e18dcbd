package video

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// The error names a server that answers a request for a part with the whole file: the picture would be decoded from
// wrong parts. The part at the beginning of a file can be read from the whole file.
func TestHLSOfByteRangesWithoutRanges(t *testing.T) {
	dir := t.TempDir()
	for name, seconds := range map[string]string{"several": "3", "one": "1"} {
		args := strings.Fields("-v error -f lavfi -i testsrc2=s=64x48:r=10:d=" + seconds +
			" -c:v libx264 -preset ultrafast -g 10 -hls_time 1 -hls_playlist_type vod -hls_flags single_file")
		for _, kind := range []string{"fmp4", "mpegts"} {
			if out, err := exec.Command(testneeds.Program(t, "ffmpeg"),
				append(args, "-hls_segment_type", kind,
					filepath.Join(dir, name+kind+".m3u8"))...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		files.ServeHTTP(w, r)
	}))
	defer s.Close()
	for _, name := range []string{"severalfmp4", "severalmpegts", "onefmp4"} {
		if times, err := timesOf(t, Options{URL: s.URL + "/" + name + ".m3u8"}); err == nil ||
			!strings.Contains(err.Error(), noParts) {
			t.Errorf("%s: %d frames, then %v", name, len(times), err)
		}
	}
	if times, err := timesOf(t, Options{URL: s.URL + "/onempegts.m3u8"}); err != io.EOF || len(times) != 10 {
		t.Errorf("%d frames, then %v; want 10", len(times), err)
	}
}

// The first request for the pictures of a playlist of byte ranges is a request for a part of a file.
func TestHLSOfByteRanges(t *testing.T) {
	dir := t.TempDir()
	args := strings.Fields("-v error -f lavfi -i testsrc2=s=64x48:r=10:d=3 -c:v libx264 -preset ultrafast -g 10 " +
		"-hls_time 1 -hls_playlist_type vod -hls_flags single_file -hls_segment_type")
	for _, kind := range []string{"fmp4", "mpegts"} {
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"),
			append(args, kind, filepath.Join(dir, kind+".m3u8"))...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(dir, kind+".m3u8")); err != nil ||
			!strings.Contains(string(text), "BYTERANGE") {
			t.Fatalf("no byte ranges: %s, %v", text, err)
		}
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	tls := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	defer tls.Close()
	for _, address := range []string{s.URL, tls.URL, strings.Replace(s.URL, "//", "//user:password@", 1)} {
		for _, kind := range []string{"fmp4", "mpegts"} {
			if times, err := timesOf(t, Options{URL: fmt.Sprintf("%s/%s.m3u8", address, kind)}); err != io.EOF ||
				len(times) != 30 {
				t.Errorf("%s of %s: %d frames, then %v; want 30", kind, Redact(address), len(times), err)
			}
		}
	}
}
