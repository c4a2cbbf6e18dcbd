package video

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

const drawing = `<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="64" height="48"><rect width="64" height="48" fill="red"/></svg>`

// Formats and codecs other than video are refused by name, in files and over HTTP, whatever the file name says.
func TestOddFormatsAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ffmpeg for each format")
	}
	dir := t.TempDir()
	segment := clip(t, "seg.ts", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-c:v", "mpeg2video")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"drawing.svg": drawing, "drawing": drawing, "drawing.ts": drawing, "drawing.png": drawing,
		"seg.ts":    string(data),
		"list":      "ffconcat version 1.0\nfile seg.ts\n",
		"list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ndrawing.ts\n#EXT-X-ENDLIST\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	odd := clip(t, "odd.mkv", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-c:v", "zmbv")
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	for _, c := range []struct{ url, want string }{
		{filepath.Join(dir, "drawing"), "format svg_pipe is not among those that are read"},
		{filepath.Join(dir, "drawing.svg"), "format svg_pipe is not among those that are read"},
		{filepath.Join(dir, "drawing.png"), "format svg_pipe is not among those that are read"},
		{filepath.Join(dir, "list"), "format concat is not among those that are read"},
		{odd, "codec zmbv is not among those that are read"},
		{s.URL + "/drawing", "format svg_pipe is not among those that are read"},
		{s.URL + "/drawing.svg", "is not among those that are read"},
		{s.URL + "/list", "format concat is not among those that are read"},
		{secret(s.URL, "/list"), "format concat is not among those that are read"},
	} {
		refuse(t, Options{URL: c.url}, Unsupported, c.want)
	}
	refuse(t, Options{URL: s.URL + "/list.m3u8"}, NotVideo, "the first part of its playlist")
}

// Scripts are allowed only for an address on descriptor 3.
func TestScriptsOfTheServerAreRefused(t *testing.T) {
	for _, scheme := range []string{SchemeRTSP, SchemeRTMP} {
		r := route{scheme: scheme, secret: true}
		if args := r.allowArgs(false); !slices.Contains(strings.Split(args[1], ","), scriptFormat) {
			t.Errorf("%s: %q", scheme, args[1])
		}
	}
	for _, scheme := range []string{SchemeHTTP, SchemeFile, SchemeExec, SchemeV4L2} {
		r := route{scheme: scheme}
		if args := r.allowArgs(false); slices.Contains(strings.Split(args[1], ","), scriptFormat) {
			t.Errorf("%s: %q", scheme, args[1])
		}
	}
}

// ffmpeg has all allowed decoders, except the decoders of other builds.
func TestDecodersAreKnown(t *testing.T) {
	has := map[string]bool{}
	for line := range strings.Lines(string(tool(t, "ffmpeg", "-hide_banner", "-decoders"))) {
		if f := strings.Fields(line); len(f) > 1 {
			has[f[1]] = true
		}
	}
	for _, name := range decoderNames {
		if !has[name] && !slices.Contains([]string{"libopenh264", "vvc", "wmapro", "libaom-av1", "libopus",
			"libvorbis"}, name) {
			t.Errorf("this ffmpeg has no decoder %s", name)
		}
	}
}

// A playlist that refers to itself is refused after a bounded number of requests, even if the playlist changes its
// address.
func TestPlaylistThatRefersToItself(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of playlists")
	}
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := asked.Add(1)
		switch q.URL.Path {
		case "/master.m3u8":
			_, _ = io.WriteString(w, "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nmaster.m3u8\n")
		case "/other.m3u8":
			_, _ = fmt.Fprintf(w, "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nother.m3u8?n=%d\n", n)
		}
	}))
	defer s.Close()
	for _, u := range []string{s.URL + "/master.m3u8", s.URL + "/other.m3u8", secret(s.URL, "/master.m3u8")} {
		asked.Store(0)
		refuse(t, Options{URL: u}, Unsupported, "a playlist that refers to itself")
		refuse(t, Options{URL: u, Allow: func(netip.Addr) error {
			return nil
		}}, Unsupported, "a playlist that refers to itself")
		if n := asked.Load(); n > 2*maxRequests {
			t.Errorf("%s: %d requests", u, n)
		}
	}
}

func TestEnvironmentHasNoSecrets(t *testing.T) {
	t.Setenv("MILLRACE_API_KEY", "planted")
	t.Setenv("FFREPORT", "file=/planted")
	t.Setenv("LIBVA_DRIVER_NAME", "driver")
	t.Setenv("LC_ALL", "de_DE")
	r := open(t, Options{URL: sample(t), Realtime: true})
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.ffmpeg.Pid()))
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	vars := strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")
	if strings.Contains(string(env), "planted") || !slices.Contains(vars, "LIBVA_DRIVER_NAME=driver") ||
		!slices.Contains(vars, "LC_ALL=C") {
		t.Errorf("%q", vars)
	}
}

// No form of an address leads to a machine outside the allowed addresses.
func TestFormsOfAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ffmpeg for each form")
	}
	private, connections := privateServer(t)
	_, port, err := net.SplitHostPort(private)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		"http://127.0.0.1:18090@" + private + "/x.ts",
		"http://user:pass%40127.0.0.1@" + private + "/x.ts",
		"http://127.0.0.2:" + port + "%2f@127.0.0.2:" + port + "/x.ts",
		"http://2130706434:" + port + "/x.ts",
		"http://0x7f000002:" + port + "/x.ts",
		"http://0x7f.0.0.2:" + port + "/x.ts",
		"http://0177.0.0.2:" + port + "/x.ts",
		"http://127.2:" + port + "/x.ts",
		"http://127.0.0.2.:" + port + "/x.ts",
		"http://[::ffff:127.0.0.2]:" + port + "/x.ts",
		"http://[::ffff:7f00:2]:" + port + "/x.ts",
		"http://127.0.0.2\\@127.0.0.1:" + port + "/x.ts",
		"http://127.0.0.2#@127.0.0.1:" + port + "/x.ts",
		"http://127.0.0.2:" + port + "\t/x.ts",
		"http:127.0.0.2:" + port + "/x.ts",
		"https://127.0.0.1@" + private + "/x.ts",
		"rtsp://127.0.0.1:18090@" + private + "/x",
		"rtsp://2130706434:" + port + "/x",
		"rtsp://[::ffff:127.0.0.2]:" + port + "/x",
	} {
		if r, err := Open(t.Context(), Options{URL: form, Allow: allowPublic}); err == nil {
			_ = r.Close()
			t.Errorf("%s was read", form)
		}
		if n := connections.Swap(0); n != 0 {
			t.Errorf("%s: %d connections to an address that is not allowed", form, n)
		}
	}
	// The first form reaches the host behind the user name only.
	if _, target, err := parseSource("http://127.0.0.1:18090@" + private + "/x.ts"); err != nil ||
		target != "http://127.0.0.1:18090@"+private+"/x.ts" {
		t.Errorf("%q, %v", target, err)
	}
	if n := len(all(t, open(t, Options{URL: "http://127.0.0.1:18090@" + private + "/x.ts"}))); n != 10 ||
		connections.Load() == 0 {
		t.Errorf("%d frames of 10, %d connections", n, connections.Load())
	}
}
