package video

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // digest authentication
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// pictures returns n JPEG pictures of 64x48.
func pictures(t testing.TB, n int) (list [][]byte) {
	t.Helper()
	out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=s=64x48:r=25", "-frames:v", fmt.Sprint(n), "-f", "mjpeg", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	for j := (&jpegReader{r: bytes.NewReader(out), max: 1 << 20, clock: time.Now}); ; {
		p, of, _, err := j.next()
		if err == io.EOF {
			break
		}
		if err != nil || of != (size{64, 48}) {
			t.Fatal(of, err)
		}
		list = append(list, bytes.Clone(p))
	}
	if len(list) != n {
		t.Fatalf("%d pictures, want %d", len(list), n)
	}
	return list
}

// framings are the forms in which cameras write motion JPEG: the content type, the beginning, and each part.
var framings = map[string]struct {
	kind, first string
	part        func(p []byte) string
}{
	"as it should be": {"multipart/x-mixed-replace; boundary=frame", "", func(p []byte) string {
		return lengthPart("--frame", "\r\n", p, len(p))
	}},
	"boundary with dashes": {"multipart/x-mixed-replace; boundary=--frame", "", func(p []byte) string {
		return lengthPart("--frame", "\r\n", p, len(p))
	}},
	"boundary in quotes": {`multipart/x-mixed-replace; boundary="my frame"`, "", func(p []byte) string {
		return lengthPart("--my frame", "\r\n", p, len(p))
	}},
	"no boundary": {"multipart/x-mixed-replace", "", func(p []byte) string {
		return lengthPart("--frame", "\r\n", p, len(p))
	}},
	"other boundary": {"multipart/x-mixed-replace; boundary=x", "", func(p []byte) string {
		return lengthPart("--y", "\r\n", p, len(p))
	}},
	"boundary written twice": {"multipart/x-mixed-replace;boundary=b", "--b\r\n", func(p []byte) string {
		return lengthPart("--b", "\r\n", p, len(p))
	}},
	"no boundary before": {"multipart/x-mixed-replace;boundary=b", "", func(p []byte) string {
		return strings.TrimPrefix(lengthPart("", "\r\n", p, len(p)), "\r\n") + "--b\r\n"
	}},
	"line feeds": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return lengthPart("--b", "\n", p, len(p))
	}},
	"length too small": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return lengthPart("--b", "\r\n", p, len(p)/2)
	}},
	"length too large": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return lengthPart("--b", "\r\n", p, 2*len(p))
	}},
	"no length": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return "--b\r\nContent-Type: image/jpeg\r\n\r\n" + string(p) + "\r\n"
	}},
	"no part headers": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return "--b\r\n\r\n" + string(p) + "\r\n"
	}},
	"image/jpg": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return "--b\r\nContent-Type: image/jpg\r\n\r\n" + string(p) + "\r\n"
	}},
	"padding and blank lines": {"multipart/x-mixed-replace; boundary=b", "\r\n\r\n", func(p []byte) string {
		return lengthPart("\r\n--b", "\r\n", p, len(p)) + "\x00\x00\xff\xd8junk\r\n"
	}},
	"no end marker": {"multipart/x-mixed-replace; boundary=b", "", func(p []byte) string {
		return lengthPart("--b", "\r\n", p[:len(p)-2], len(p)-2)
	}},
	"no multipart":       {"image/jpeg", "", func(p []byte) string { return string(p) }},
	"no content type":    {"", "", func(p []byte) string { return lengthPart("--b", "\r\n", p, len(p)) }},
	"other content type": {"application/octet-stream", "", func(p []byte) string { return string(p) }},
}

func lengthPart(boundary, end string, p []byte, n int) string {
	return boundary + end + "Content-Type: image/jpeg" + end + fmt.Sprint("Content-Length: ", n) + end + end +
		string(p) + end
}

// camera serves motion JPEG: each path is a framing.
func camera(t *testing.T, list [][]byte) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := framings[strings.ReplaceAll(r.URL.Path[1:], "_", " ")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header()["Content-Type"] = nil
		if f.kind != "" {
			w.Header().Set("Content-Type", f.kind)
		}
		_, _ = io.WriteString(w, f.first)
		for _, p := range list {
			_, _ = io.WriteString(w, f.part(p))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// timesOf reads a source to the end with long time-outs, and returns the times of all frames.
func timesOf(t *testing.T, o Options) (times []time.Duration, err error) {
	t.Helper()
	return timesAsRead(t, o, func() {})
}

// timesAsRead is timesOf with a call of got after each frame.
func timesAsRead(t *testing.T, o Options, got func()) (times []time.Duration, err error) {
	t.Helper()
	o.StartTimeout, o.StallTimeout = time.Minute, time.Minute
	r, err := Open(t.Context(), o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var buf []byte
	for {
		if cap(buf) < r.FrameSize() {
			buf = make([]byte, r.FrameSize())
		}
		f, err := r.Next(buf)
		if err != nil {
			return times, err
		}
		buf, times = f.Data, append(times, f.PTS)
		got()
	}
}

func TestFramingsOfMotionJPEG(t *testing.T) {
	list := pictures(t, 6)
	s := camera(t, list)
	for name := range framings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			times, err := timesOf(t, Options{URL: s.URL + "/" + strings.ReplaceAll(name, " ", "_")})
			if err != io.EOF || len(times) != len(list) {
				t.Errorf("%d frames of %d, then %v", len(times), len(list), err)
			}
		})
	}
}

// paced is a source that waits for its reader: part i is sent a gap after the frame of part i-lag was read.
type paced struct {
	parts [][]byte
	lag   int           // parts that the parser needs beyond a frame's own
	read  chan struct{} // one value per frame read
	sent  []time.Time   // when each part was sent; valid after done
	done  chan struct{}
}

func newPaced(parts [][]byte, lag int) *paced {
	return &paced{parts: parts, lag: lag, read: make(chan struct{}, len(parts)), done: make(chan struct{})}
}

// send sends the parts with write.
func (p *paced) send(ctx context.Context, gap time.Duration, write func([]byte)) {
	defer close(p.done)
	for i, part := range p.parts {
		if i >= p.lag {
			select {
			case <-p.read:
				time.Sleep(gap)
			case <-ctx.Done():
				return
			}
		}
		p.sent = append(p.sent, time.Now())
		write(part)
	}
}

// check reads the source. The time of each frame lies between sending and reading.
func (p *paced) check(t *testing.T, o Options) {
	t.Helper()
	var read []time.Time
	times, err := timesAsRead(t, o, func() { read = append(read, time.Now()); p.read <- struct{}{} })
	if err != io.EOF || len(times) != len(p.parts) || times[0] != 0 || !slices.IsSorted(times) {
		t.Fatalf("times %v, then %v; want %d", times, err, len(p.parts))
	}
	<-p.done
	for i := range times {
		for j := range i {
			const rounding = time.Millisecond
			least, most := p.sent[i].Sub(read[j])-rounding, read[i].Sub(p.sent[j])+rounding
			if since := times[i] - times[j]; since < least || since > most {
				t.Fatalf("frame %d is %v after frame %d, want %v to %v; times %v", i, since, j, least, most, times)
			}
		}
	}
}

func TestTimesOfArrival(t *testing.T) {
	// ffmpeg assumes 25 pictures a second: the gap must be larger than lag times 40 ms.
	const n, gap = 12, 150 * time.Millisecond
	var parts [][]byte
	list := pictures(t, n)
	for _, p := range list {
		parts = append(parts, []byte(lengthPart("--frame", "\r\n", p, len(p))))
	}
	overHTTP := func(t *testing.T, sandbox bool) {
		t.Parallel()
		p := newPaced(parts, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
			p.send(r.Context(), gap, func(b []byte) {
				_, _ = w.Write(b)
				_ = http.NewResponseController(w).Flush()
			})
		}))
		defer s.Close()
		p.check(t, Options{URL: s.URL, Sandbox: sandbox})
	}
	t.Run("http", func(t *testing.T) { overHTTP(t, false) })
	t.Run("sandbox", func(t *testing.T) {
		videotest.NeedSandbox(t)
		overHTTP(t, true)
	})
	for name, p := range map[string]*paced{"mjpeg": newPaced(list, 1), "mpjpeg": newPaced(parts, 1),
		"h264": newPaced(accessUnits(t, n), 2)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "video")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			to, err := os.OpenFile(fifo, os.O_RDWR, 0) // does not wait for the program
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer to.Close()
				p.send(t.Context(), gap, func(b []byte) { _, _ = to.Write(b) })
			}()
			p.check(t, Options{URL: "exec:cat " + fifo})
		})
	}
}

// accessUnits returns n pictures of H.264.
func accessUnits(t *testing.T, n int) (list [][]byte) {
	t.Helper()
	out := tool(t, "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=25", "-frames:v", fmt.Sprint(n),
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-x264-params", "aud=1", "-f", "h264", "-")
	delimiter := []byte{0, 0, 0, 1, 9}
	for _, unit := range bytes.Split(out, delimiter)[1:] {
		list = append(list, append(bytes.Clone(delimiter), unit...))
	}
	if len(list) != n {
		t.Fatalf("%d access units, want %d", len(list), n)
	}
	return list
}

// Encoders may hold back pictures for later pictures; the times rise all the same.
func TestTimesOfDelayedPictures(t *testing.T) {
	const n = 12
	for _, encode := range []string{"-c:v libx264 -bf 2 -f h264", "-c:v libx265 -x265-params log-level=none -f hevc"} {
		t.Run(encode, func(t *testing.T) {
			t.Parallel()
			source := fmt.Sprintf("exec:ffmpeg -v error -re -f lavfi -i testsrc2=s=64x48:r=5 -frames:v %d -preset "+
				"ultrafast -flush_packets 1 %s -", n, encode)
			times, err := timesOf(t, Options{URL: source})
			if err != io.EOF || len(times) != n || !slices.IsSorted(times) || times[0] != 0 {
				t.Errorf("times %v, then %v", times, err)
			}
		})
	}
}

// A camera's rate is kept when pictures arrive a little early or late.
func TestRateOfArrival(t *testing.T) {
	list := pictures(t, 50)
	now, i := time.Unix(1e9, 0), 0
	clock := func() time.Time {
		at := now.Add(time.Duration(i)*200*time.Millisecond + time.Duration(30*math.Sin(float64(i*i)))*time.Millisecond)
		i++
		return at
	}
	var readers []io.Reader // one Read per picture
	for _, p := range list {
		readers = append(readers, bytes.NewReader(p))
	}
	var ivf bytes.Buffer
	if err := copyPictures(&ivf, &jpegReader{r: io.MultiReader(readers...), max: 1 << 20, clock: clock}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pictures.ivf")
	if err := os.WriteFile(file, ivf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for fps, want := range map[float64]int{0: 50, 20: 50, 5: 50, 2: 20, 1: 10} {
		o, err := Options{URL: "http://camera.example/", FPS: fps}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		args := o.ffmpegArgs(&route{scheme: SchemeHTTP, feed: &feed{content: motionJPEG}}, "", 64, 48)
		cmd := exec.Command(testneeds.Program(t, "ffmpeg"), args...)
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		cmd.ExtraFiles = []*os.File{in}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		n := newNutReader(bytes.NewReader(out))
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
		got := 0
		for ; ; got++ {
			_, _, rest, err := n.next()
			if err == io.EOF {
				break
			}
			if _, err2 := n.r.Discard(rest); err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
		}
		if got < want || got > want+1 {
			t.Errorf("fps %v: %d of 50 frames at 5 a second, want %d", fps, got, want)
		}
	}
}

func TestWebPageIsNoCamera(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<html><title>Log in</title></html>")
		case "/text":
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
			_, _ = io.WriteString(w, "--b\r\nContent-Type: text/plain\r\n\r\nThe camera is busy\r\n")
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{"/login": "web page", "/text": "The camera is busy"} {
		_, err := timesOf(t, Options{URL: s.URL + path})
		if KindOf(err) != NotVideo || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want it to contain %q", path, err, want)
		}
	}
}

func TestPasswordOfMotionJPEG(t *testing.T) {
	list := pictures(t, 3)
	sum := func(s string) string { // digest authentication
		h := md5.Sum([]byte(s)) //nolint:gosec
		return hex.EncodeToString(h[:])
	}
	field := regexp.MustCompile(`(\w+)="?([^",]*)"?`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := false
		switch r.URL.Path {
		case "/basic":
			user, password, _ := r.BasicAuth()
			allowed = user == "viewer" && password == "p@ss:w#r/d"
			w.Header().Set("WWW-Authenticate", `Basic realm="cam"`)
		case "/digest":
			got := map[string]string{}
			for _, f := range field.FindAllStringSubmatch(r.Header.Get("Authorization"), -1) {
				got[f[1]] = f[2]
			}
			want := sum(strings.Join([]string{sum("viewer:cam:p@ss:w#r/d"), "abc", got["nc"], got["cnonce"], "auth",
				sum("GET:/digest")}, ":"))
			allowed = got["response"] == want
			w.Header().Set("WWW-Authenticate", `Digest realm="cam", nonce="abc", qop="auth,auth-int", algorithm=MD5`)
		}
		if !allowed {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
		for _, p := range list {
			_, _ = io.WriteString(w, lengthPart("--b", "\r\n", p, len(p)))
		}
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	for _, path := range []string{"/basic", "/digest"} {
		if times, err := timesOf(t, Options{URL: "http://viewer:p%40ss%3Aw%23r%2Fd@" + host + path}); err != io.EOF ||
			len(times) != 3 {
			t.Errorf("%s: %d frames, then %v", path, len(times), err)
		}
		if _, err := timesOf(t, Options{URL: "http://viewer:wrong@" + host + path}); KindOf(err) != Auth ||
			strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s with a wrong password: %v", path, err)
		}
	}
	if _, err := Open(context.Background(), Options{URL: s.URL + "/basic"}); !errors.As(err, new(*Error)) {
		t.Error(err)
	}
}

func FuzzJPEGs(f *testing.F) {
	list := pictures(f, 2)
	f.Add(append(bytes.Clone(list[0]), list[1]...))
	f.Add([]byte("--b\r\nContent-Type: image/jpeg\r\n\r\n\xff\xd8\xff\xe0\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for j := (&jpegReader{r: bytes.NewReader(b), max: 1 << 16, clock: time.Now}); ; {
			p, _, _, err := j.next()
			if err != nil {
				return
			}
			if len(p) < 4 || p[0] != 0xFF || p[1] != 0xD8 {
				t.Fatalf("no picture: % x", p[:min(len(p), 8)])
			}
		}
	})
}

func TestPixelAspect(t *testing.T) {
	path := clip(t, "sar.mp4", "-f", "lavfi", "-i", "testsrc2=s=90x72:r=5:d=1", "-vf", "setsar=64/45", "-c:v",
		"libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart")
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	defer s.Close()
	for _, address := range []string{path, s.URL + "/" + filepath.Base(path)} {
		r, err := Open(t.Context(), Options{URL: address})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Info().PixelAspect; math.Abs(got-64.0/45) > 1e-6 {
			t.Errorf("%s: %v", address, got)
		}
		_ = r.Close()
	}
}
