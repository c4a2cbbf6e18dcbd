package video

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// Each kind of source has the access it needs, and no more.
func TestSandboxes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.mp4")
	for _, c := range []struct {
		url     string
		allow   bool
		network bool
		port    bool
		reads   []string
	}{
		{url: file, reads: []string{file, dir}},
		{url: "/x.mp4", reads: []string{"/x.mp4"}}, // not the root
		{url: "exec:true"},
		{url: "http://camera.example/x", port: true},
		{url: "https://camera.example/x", allow: true, port: true},
		{url: "rtsp://camera.example/x", allow: true, port: true},
		{url: "rtsps://camera.example/x", allow: true, port: true},
		{url: "rtsp://camera.example/x", network: true, reads: confine.ResolverFiles()},
		{url: "rtmp://camera.example/x", network: true, reads: confine.ResolverFiles()},
	} {
		scheme, target, err := parseSource(c.url)
		if err != nil {
			t.Fatal(err)
		}
		o, src := Options{URL: c.url}, newSource(c.url)
		if c.allow {
			o.Allow = func(netip.Addr) error { return nil }
		}
		r, err := newRoute(t.Context(), &o, &src, scheme, target, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		s := r.sandbox("ffmpeg")
		if s.Network != c.network || len(s.Connect) == 1 != c.port {
			t.Errorf("%s: network %v, ports %v", c.url, s.Network, s.Connect)
		}
		if c.port && fmt.Sprint(s.Connect[0]) != strings.TrimPrefix(r.listener.addr, "127.0.0.1:") {
			t.Errorf("%s: port %v, and it is %s", c.url, s.Connect, r.listener.addr)
		}
		if got := s.Read[len(NewSandbox("ffmpeg").Read):]; !slices.Equal(got, c.reads) {
			t.Errorf("%s: reads also %q", c.url, got)
		}
		r.close()
	}
	if (&route{scheme: SchemeV4L2}).sandbox("ffmpeg") != nil {
		t.Error("a camera of this machine is confined")
	}
	for _, path := range NewSandbox("ffmpeg").Read {
		for _, open := range []string{"/etc/passwd", "/etc/shadow", "/etc/ssl/private", "/root", "/home", "/proc",
			"/dev", "/tmp", "/var", "/run"} {
			if rest, ok := strings.CutPrefix(open, strings.TrimSuffix(path, "/")); ok &&
				(rest == "" || rest[0] == '/') {
				t.Errorf("%s may be read, by %s", open, path)
			}
		}
	}
}

// An ffmpeg that tries more than decoding, under any user, reads no other file, writes no file, and connects nowhere.
func TestConfinedFFmpeg(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many ffmpegs")
	}
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	hidden := sample(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	defer wg.Wait()
	defer ln.Close()
	_, text, _ := net.SplitHostPort(ln.Addr().String())
	port, _ := strconv.ParseUint(text, 10, 16)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	picture := []string{"-f", "lavfi", "-i", "color=size=16x16", "-frames:v", "1"}
	text = filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("planted"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		args []string
		with *child.Sandbox // nil: the sandbox of a Decoder
	}{
		{"a video", []string{"-i", hidden, "-f", "null", "-"}, nil},
		{"bytes of a file", []string{"-f", "u8", "-ar", "1", "-ac", "1", "-i", text, "-f", "null", "-"}, nil},
		{"bytes of /etc/passwd", []string{"-f", "u8", "-ar", "1", "-ac", "1", "-i", "/etc/passwd", "-f", "null", "-"},
			nil},
		{"a file that is written", append(slices.Clone(picture), "-f", "rawvideo", filepath.Join(dir, "out")), nil},
		{"a connection", append(slices.Clone(picture), "-c:v", "mpeg1video", "-f", "mpegts",
			"tcp://"+ln.Addr().String()), nil},
		{"a connection to another port than the proxy's", append(slices.Clone(picture), "-c:v", "mpeg1video", "-f",
			"mpegts", "tcp://"+ln.Addr().String()), &child.Sandbox{Connect: []uint16{uint16(port ^ 1)}}},
		{"packets", append(slices.Clone(picture), "-c:v", "mpeg1video", "-f", "mpegts",
			"udp://"+udp.LocalAddr().String()), &child.Sandbox{Connect: []uint16{uint16(port)}}},
	} {
		run := func(s *child.Sandbox) error {
			p, err := child.Start(t.Context(), child.Spec{
				Path: testneeds.Program(t, "ffmpeg"), Args: append([]string{"-nostdin", "-v", "error", "-y"},
					c.args...), Env: Environment(), Sandbox: s,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Stop(0) }()
			return p.Wait()
		}
		s := NewSandbox("ffmpeg")
		if c.with != nil {
			s.Connect = c.with.Connect
		}
		free := run(nil)
		confined := run(s)
		switch {
		case confined == nil && (len(s.Connect) == 0 || child.LandlockABI() >= 4):
			t.Errorf("%s: it was allowed", c.what)
		case confined != nil && !strings.Contains(confined.Error(), "ermission denied"):
			t.Errorf("%s: it failed for another reason: %v", c.what, confined)
		case free != nil:
			t.Errorf("%s: it fails also without the sandbox: %v", c.what, free)
		}
	}
	if err := CheckSandbox(t.Context()); err != nil {
		t.Error(err)
	}
}

// Decoders of chunks and sources are confined when the options say so, and else not.
func TestSandboxOption(t *testing.T) {
	videotest.NeedSandbox(t)
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(longSample(t)))))
	defer s.Close()
	for _, confined := range []bool{true, false} {
		d, err := NewDecoder(t.Context(), DecoderOptions{Codec: VP8, Width: 64, Height: 48, Sandbox: confined})
		if err != nil {
			t.Fatal(err)
		}
		if videotest.Confined(t) != confined {
			t.Errorf("a decoder: not %v", confined)
		}
		_ = d.Close()
		for _, u := range []string{longSample(t), s.URL + "/" + filepath.Base(longSample(t))} {
			r, err := Open(t.Context(), Options{URL: u, Realtime: true, Sandbox: confined})
			if err != nil {
				t.Fatal(err)
			}
			if videotest.Confined(t) != confined {
				t.Errorf("%s: not %v", u, confined)
			}
			_ = r.Close()
		}
	}
}

// A playlist leads to no file outside its folder.
func TestPlaylistOfFilesIsConfined(t *testing.T) {
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	segment := clip(t, "seg.ts", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-c:v", "mpeg2video")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "seg.ts"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	list := func(name, entry string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n"+entry+
			"\n#EXT-X-ENDLIST\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	outside := list("outside.m3u8", segment)
	if n := len(all(t, open(t, Options{URL: list("inside.m3u8", "seg.ts")}))); n != 10 {
		t.Errorf("%d frames of 10", n)
	}
	if r, err := Open(t.Context(), Options{URL: outside, Sandbox: true}); err == nil {
		_ = r.Close()
		t.Error("a playlist has led to a file outside its folder")
	}
	r, err := Open(t.Context(), Options{URL: outside})
	if err != nil {
		t.Fatal("it fails also without the sandbox: ", err)
	}
	defer r.Close()
	if n := len(all(t, r)); n != 10 {
		t.Errorf("%d frames of 10", n)
	}
}
