package video

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
)

// refuse opens a source and wants an error of the kind, with the words and without the secret in its text.
func refuse(t *testing.T, o Options, kind Kind, words ...string) {
	t.Helper()
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	o.Sandbox = o.confined()
	r, err := Open(t.Context(), o)
	if err == nil {
		_ = r.Close()
		t.Errorf("%s opened; want %s", o.URL, kind)
		return
	}
	if got := KindOf(err); got != kind {
		t.Errorf("%s: %s: %v; want %s", o.URL, got, err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", o.URL, err, w)
		}
	}
	if strings.Contains(fmt.Sprintf("%v %+v", err, err), "geheim") {
		t.Errorf("the error contains the password: %v", err)
	}
	if child.LiveChildren() != 0 {
		t.Errorf("%d children left", child.LiveChildren())
	}
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesWithoutVideo(t *testing.T) {
	long := []byte(strings.Repeat("All work and no play makes a dull text.\n", 2000))
	refuse(t, Options{URL: write(t, "empty.mp4", nil)}, NotVideo, "there is no video in it", "the file is empty")
	refuse(t, Options{URL: write(t, "text.txt", []byte("hello there\n"))}, NotVideo, "there is no video in it")
	refuse(t, Options{URL: write(t, "long.txt", long)}, NotVideo, "there is no video in it")
	refuse(t, Options{URL: write(t, "text.mp4", long)}, NotVideo, "there is no video in it")
	refuse(t, Options{URL: t.TempDir()}, NotVideo, "folder")
	refuse(t, Options{URL: filepath.Join(t.TempDir(), "missing.mp4")}, NotFound, "nothing at this address")
	sound := clip(t, "sound.wav", "-f", "lavfi", "-i", "sine=duration=1")
	refuse(t, Options{URL: sound}, NotVideo, "sound, subtitles or data only")
	cover := clip(t, "cover.png", "-f", "lavfi", "-i", "color=size=64x64", "-frames:v", "1")
	withCover := clip(t, "cover.mp3", "-i", sound, "-i", cover, "-map", "0", "-map", "1", "-c:v", "copy",
		"-disposition:v", "attached_pic")
	refuse(t, Options{URL: withCover}, NotVideo, "sound, subtitles or data only")
}

func TestPermissionDenied(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may read everything, so only the printed text can be checked.
		if f, _ := failureIn("file:x.mp4: Permission denied"); f.kind != Auth {
			t.Errorf("got %s", f.kind)
		}
		return
	}
	path := write(t, "locked.mp4", []byte("x"))
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	refuse(t, Options{URL: path}, Auth)
}

// readAll reads to the error.
func readAll(r *Reader) (n int, err error) {
	dst := make([]byte, max(r.FrameSize(), 1))
	for {
		if _, err := r.Next(dst); err != nil {
			return n, err
		}
		n++
	}
}

func TestTruncatedFiles(t *testing.T) {
	mkv := clip(t, "s.mkv", "-i", sample(t), "-c", "copy")
	for _, path := range []string{sample(t), mkv} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := write(t, "cut"+filepath.Ext(path), data[:len(data)/2])
		r := open(t, Options{URL: cut, Width: 32, Height: 24})
		n, err := readAll(r)
		if n == 0 || n >= 60 || KindOf(err) != EndedEarly {
			t.Errorf("%s: %d frames, %v; want some, then ended_early", filepath.Ext(path), n, err)
		}
	}
	// The index stands at the end of late.mp4.
	late := clip(t, "late.mp4", "-i", sample(t), "-c", "copy")
	data, err := os.ReadFile(late)
	if err != nil {
		t.Fatal(err)
	}
	refuse(t, Options{URL: write(t, "late.mp4", data[:len(data)/2])}, EndedEarly, "index is missing")
}

func TestFFmpegMissing(t *testing.T) {
	path := sample(t)
	for _, o := range []Options{
		{URL: path, FFprobe: "/no/such/ffprobe"},
		{URL: path, FFmpeg: "/no/such/ffmpeg"},
		{URL: path, FFmpeg: "millrace-no-ffmpeg"},
	} {
		_, err := Open(t.Context(), o)
		if KindOf(err) != FFmpegMissing || !strings.Contains(err.Error(), "apt-get install ffmpeg") {
			t.Errorf("got %v", err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Open(t.Context(), Options{URL: path}); KindOf(err) != FFmpegMissing {
		t.Errorf("with an empty PATH: %v", err)
	}
}

func TestOptionErrors(t *testing.T) {
	for want, o := range map[string]Options{
		"Options.Format is \"bgr\"":   {Format: "bgr"},
		"Options.Width is -1":         {Width: -1},
		"Options.Height is 20000":     {Height: 20000},
		"Options.FPS is -2":           {FPS: -2},
		"Options.Encoded is \"h264\"": {Encoded: "h264"},
		"Options.Quality is 101":      {Quality: 101},
		"Options.MaxFrameBytes is -1": {MaxFrameBytes: -1},
		"Options.StartTimeout is -1s": {StartTimeout: -time.Second},
	} {
		o.URL = "x.mp4"
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	for _, u := range []string{"", "concat:a|b", "pipe:0", "data:video/mp4;base64,AA", "subfile,,start,0,end,9,,:x",
		"gopher://h/x", "http:///x", "http://a b/", "file://host/x", "http://x/\r\nHost: y"} {
		if _, err := Open(t.Context(), Options{URL: u}); KindOf(err) != Unsupported {
			t.Errorf("%q: %v", u, err)
		}
	}
	// ffmpeg refuses unlisted protocols, also in playlists.
	refuse(t, Options{URL: "http://127.0.0.1:1/x.mp4", Protocols: []string{"file"}}, Unsupported,
		"the protocol http is not allowed here")
}

func TestNetworkPlaylistCannotReadFiles(t *testing.T) {
	segment := clip(t, "seg.ts", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-c:v", "mpeg2video")
	var fetched []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fetched = append(fetched, q.URL.Path)
		switch q.URL.Path {
		case "/evil.m3u8":
			_, _ = fmt.Fprintf(w, "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://%s\n#EXT-X-ENDLIST\n", segment)
		case "/good.m3u8":
			_, _ = fmt.Fprint(w, "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nseg.ts\n#EXT-X-ENDLIST\n")
		default:
			http.ServeFile(w, q, segment)
		}
	}))
	defer s.Close()
	if r, err := Open(t.Context(), Options{URL: s.URL + "/evil.m3u8", StartTimeout: time.Minute}); err == nil {
		_ = r.Close()
		t.Error("a playlist of the network read a local file")
	}
	if n := len(all(t, open(t, Options{URL: s.URL + "/good.m3u8"}))); n != 10 {
		t.Errorf("the same with an address of the network: %d frames; want 10 (%v)", n, fetched)
	}
}

// secret puts a user name and a password into a server's address, and a token at its end.
func secret(address, path string) string {
	return strings.Replace(address, "://", "://admin:geheim@", 1) + path + "?token=geheimnis"
}

func TestHTTPStatus(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		status, _ := strconv.Atoi(strings.Trim(q.URL.Path, "/"))
		if status == 401 {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	for status, kind := range map[int]Kind{401: Auth, 403: Auth, 404: NotFound, 418: Refused, 500: Refused,
		503: Refused, 200: NotVideo} {
		refuse(t, Options{URL: secret(s.URL, fmt.Sprintf("/%d", status))}, kind, "http://***@127.0.0.1")
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	for _, scheme := range []string{"http", "rtsp", "rtmp"} {
		refuse(t, Options{URL: secret(scheme+"://"+address, "/x")}, Refused, "refused", scheme+"://***@127.0.0.1")
	}
	refuse(t, Options{URL: "http://millrace.invalid/x.mp4"}, NotFound)
}

func TestServerThatNeverAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the backlog alone accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, scheme := range []string{"http", "rtsp"} {
		refuse(t, Options{URL: secret(scheme+"://"+l.Addr().String(), "/x"), StartTimeout: 300 * time.Millisecond},
			Timeout, "no frame arrived in time")
	}
}

// An index at the end of a file needs a server with ranges, for the part before the index.
func TestIndexAtTheEnd(t *testing.T) {
	late := clip(t, "late.mp4", "-i", sample(t), "-c", "copy")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		path := late
		if q.URL.Path == "/converted.mp4" {
			path = sample(t)
		}
		if q.URL.Path == "/ranges.mp4" {
			http.ServeFile(w, q, path)
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	}))
	defer s.Close()
	refuse(t, Options{URL: s.URL + "/late.mp4"}, Unsupported, "its end", "-movflags +faststart")
	if n := len(all(t, open(t, Options{URL: s.URL + "/converted.mp4"}))); n != 60 {
		t.Errorf("converted: %d frames", n)
	}
	if n := len(all(t, open(t, Options{URL: s.URL + "/ranges.mp4"}))); n != 60 {
		t.Errorf("from a server with ranges: %d frames", n)
	}
}

// A connection that breaks off before the first frame is not mistaken for a server without ranges.
func TestServerThatBreaksOffEarly(t *testing.T) {
	data, err := os.ReadFile(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(data, []byte("mdat"))
	for _, sent := range []int{begin - 8, begin + 4, begin + 2000} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data[:sent]) // net/http closes the connection: fewer bytes than announced
		}))
		r, err := Open(t.Context(), Options{URL: s.URL + "/x.mp4", StartTimeout: time.Minute})
		if err == nil {
			_ = r.Close()
		}
		if err == nil || strings.Contains(err.Error(), "faststart") {
			t.Errorf("after %d bytes: %v", sent, err)
		}
		s.Close()
	}
}

// half serves the first part of a file with the length of the whole file, then calls end.
func half(t *testing.T, path string, end func(w http.ResponseWriter, q *http.Request)) *httptest.Server {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		end(w, q)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestServerThatStallsMidway(t *testing.T) {
	s := half(t, sample(t), func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	r := open(t, Options{URL: secret(s.URL, "/x.mp4"), StallTimeout: 500 * time.Millisecond, Width: 32, Height: 24})
	n, err := readAll(r)
	if n == 0 || n >= 60 || KindOf(err) != Stalled || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%d frames, %v; want some, then stalled", n, err)
	}
	if _, again := r.Next(make([]byte, r.FrameSize())); again != err {
		t.Errorf("the error is not final: %v", again)
	}
}

func TestServerThatBreaksOff(t *testing.T) {
	s := half(t, sample(t), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	r := open(t, Options{URL: s.URL + "/x.mp4", Width: 32, Height: 24})
	if n, err := readAll(r); n == 0 || n >= 60 || KindOf(err) != EndedEarly {
		t.Errorf("%d frames, %v; want some, then ended_early", n, err)
	}
}

func TestKilledFromOutside(t *testing.T) {
	r := open(t, Options{URL: longSample(t)})
	dst := make([]byte, r.FrameSize())
	if _, err := r.Next(dst); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.ffmpeg.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := readAll(r)
	var exit *child.ExitError
	if KindOf(err) != Killed || !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
		t.Errorf("got %v", err)
	}
}

func TestLogHasNoSecrets(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var lines []string
	_, err := Open(t.Context(), Options{URL: secret(s.URL, "/x"), Log: func(l string) {
		lines = append(lines, l)
	}, StartTimeout: time.Minute})
	if KindOf(err) != NotFound || len(lines) == 0 {
		t.Fatalf("%v, log %q", err, lines)
	}
	if text := strings.Join(lines, "\n"); strings.Contains(text, "geheim") || strings.Contains(text, "0x") {
		t.Errorf("log: %s", text)
	}
}

func TestProbe(t *testing.T) {
	info, err := Probe(t.Context(), Options{URL: sample(t)})
	if err != nil || info.Width != 320 || info.FPS != 30 || info.Codec != "h264" || !info.HasVideo {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestErrorTexts(t *testing.T) {
	for kind := range kindText {
		e := newSource("rtsp://u:geheim@h/x").fail(kind, "", io.ErrUnexpectedEOF)
		if !strings.HasPrefix(e.Error(), "video: rtsp://***@h/x: ") || !errors.Is(e, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", kind, e)
		}
	}
	if KindOf(io.EOF) != "" || Stalled.Retry() != true || NotVideo.Retry() {
		t.Error("KindOf or Retry is wrong")
	}
}
