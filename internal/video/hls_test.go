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

// The first request for the pictures of such a playlist is one for a part of a file.
func TestHLSOfByteRanges(t *testing.T) {
	dir := t.TempDir()
	args := strings.Fields("-v error -f lavfi -i testsrc2=s=64x48:r=10:d=3 -c:v libx264 -preset ultrafast -g 10 -hls_time 1 -hls_playlist_type vod -hls_flags single_file -hls_segment_type")
	for _, kind := range []string{"fmp4", "mpegts"} {
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"), append(args, kind, filepath.Join(dir, kind+".m3u8"))...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(dir, kind+".m3u8")); err != nil || !strings.Contains(string(text), "BYTERANGE") {
			t.Fatalf("no byte ranges: %s, %v", text, err)
		}
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	tls := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	defer tls.Close()
	for _, address := range []string{s.URL, tls.URL, strings.Replace(s.URL, "//", "//user:password@", 1)} {
		for _, kind := range []string{"fmp4", "mpegts"} {
			if times, err := timesOf(t, Options{URL: fmt.Sprintf("%s/%s.m3u8", address, kind)}); err != io.EOF || len(times) != 30 {
				t.Errorf("%s of %s: %d frames, then %v; want 30", kind, Redact(address), len(times), err)
			}
		}
	}
}
