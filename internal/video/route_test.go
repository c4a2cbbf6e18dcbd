package video

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

var errPrivate = errors.New("127.0.0.2 is private")

// allowPublic allows all but 127.0.0.2.
func allowPublic(a netip.Addr) error {
	if a == netip.MustParseAddr("127.0.0.2") {
		return errPrivate
	}
	return nil
}

// privateServer is an HTTP server at 127.0.0.2 that serves a video and counts connections.
func privateServer(t *testing.T) (address string, connections *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("no second loopback address here: ", err)
	}
	connections = new(atomic.Int32)
	segment := clip(t, "seg.ts", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-c:v", "mpeg2video")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.ServeFile(w, q, segment)
	}))
	_ = s.Listener.Close()
	s.Listener = counter{ln, connections}
	s.Start()
	t.Cleanup(s.Close)
	return ln.Addr().String(), connections
}

type counter struct {
	net.Listener
	n *atomic.Int32
}

func (c counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// rtspReplies answers each RTSP request in the same way.
func rtspReplies(t *testing.T, answer string) (address string) {
	t.Helper()
	l, err := listen(t.Context(), func(_ context.Context, conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		for {
			cseq := ""
			for line := ""; line != "\r\n"; {
				var err error
				if line, err = in.ReadString('\n'); err != nil {
					return
				}
				if strings.HasPrefix(line, "CSeq:") {
					cseq = line
				}
			}
			if _, err := fmt.Fprintf(conn, "RTSP/1.0 %s\r\n%s\r\n", answer, cseq); err != nil {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return "rtsp://" + l.addr
}

// Nothing connects to a disallowed address, whatever the origin of the address.
func TestAllow(t *testing.T) {
	private, connections := privateServer(t)
	list := func(entry string) string {
		return "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + entry + "\n#EXT-X-ENDLIST\n"
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/redirect", "/redirect.ts":
			http.Redirect(w, q, "http://"+private+"/x.ts", http.StatusFound)
		case "/secure":
			http.Redirect(w, q, "https://"+private+"/x.ts", http.StatusFound)
		case "/list.m3u8":
			_, _ = io.WriteString(w, list("http://"+private+"/x.ts"))
		case "/secure.m3u8":
			_, _ = io.WriteString(w, list("https://"+private+"/x.ts"))
		case "/later.m3u8":
			_, _ = io.WriteString(w, list("/redirect.ts"))
		case "/master.m3u8":
			_, _ = io.WriteString(w, "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nhttp://"+private+"/x.m3u8\n")
		case "/key.m3u8":
			_, _ = io.WriteString(w, strings.Replace(list("/x.ts"), "#EXTINF",
				"#EXT-X-KEY:METHOD=AES-128,URI=\"http://"+private+"/key\"\n#EXTINF", 1))
		}
	}))
	defer s.Close()
	for _, u := range []string{
		s.URL + "/redirect", secret(s.URL, "/redirect"), s.URL + "/secure", s.URL + "/list.m3u8",
		secret(s.URL, "/list.m3u8"), s.URL + "/secure.m3u8",
		s.URL + "/later.m3u8", s.URL + "/master.m3u8", s.URL + "/key.m3u8",
		"http://" + private + "/x.ts", "https://" + private + "/x.ts", "rtsp://" + private + "/x",
		"rtsps://" + private + "/x", secret("rtsp://"+private, "/x"),
	} {
		refuse(t, Options{URL: u, Allow: allowPublic}, Forbidden, errPrivate.Error())
	}
	refuse(t, Options{URL: rtspReplies(t, "302 Found\r\nLocation: rtsp://"+private+"/x"), Allow: allowPublic},
		Forbidden, "use that address")
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections to an address that is not allowed", n)
	}
	// Without Allow the connections succeed, so the test can fail.
	if n := len(all(t, open(t, Options{URL: secret(s.URL, "/list.m3u8")}))); n != 10 || connections.Load() == 0 {
		t.Errorf("%d frames of 10, %d connections", n, connections.Load())
	}
}

// Allow is called with the addresses of a name.
func TestAllowIsCalledAfterTheLookUp(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, scheme := range []string{"http", "https", "rtsp", "rtsps"} {
		refuse(t, Options{URL: scheme + "://localhost:" + port + "/x", Allow: func(a netip.Addr) error {
			if !a.IsLoopback() {
				t.Errorf("asked about %v", a)
			}
			return errPrivate
		}}, Forbidden, errPrivate.Error())
	}
}

// An allowed address works, and fails, as without Allow.
func TestAllowed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts FFmpeg many times")
	}
	dir := filepath.Dir(sample(t))
	for _, s := range []*httptest.Server{httptest.NewServer(http.FileServer(http.Dir(dir))),
		httptest.NewTLSServer(http.FileServer(http.Dir(dir)))} {
		defer s.Close()
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		for _, u := range []string{s.URL + "/" + filepath.Base(sample(t)),
			secret(s.URL, "/"+filepath.Base(sample(t)))} {
			r := open(t, Options{URL: u, Allow: allowPublic, Width: 32, Height: 24})
			if n := len(all(t, r)); n != 60 || r.Info().Duration == 0 {
				t.Errorf("%s: %d frames, %+v", u, n, r.Info())
			}
		}
		refuse(t, Options{URL: secret(s.URL, "/none.mp4"), Allow: allowPublic}, NotFound, "404")
	}
	refuse(t, Options{URL: secret(rtspReplies(t, "401 Unauthorized"), "/x"), Allow: allowPublic}, Auth, "401")
	refuse(t, Options{URL: secret(rtspReplies(t, "404 Not Found"), "/x"), Allow: allowPublic}, NotFound, "404")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, scheme := range []string{"http", "https", "rtsp", "rtsps"} {
		refuse(t, Options{URL: secret(scheme+"://"+l.Addr().String(), "/x"), Allow: allowPublic}, Refused,
			"nothing accepts connections at this port")
		refuse(t, Options{URL: scheme + "://millrace.invalid/x", Allow: allowPublic}, NotFound,
			"no host of this name was found")
	}
	for _, u := range []string{"rtmp://127.0.0.1/x", sample(t), "/dev/video0", "exec:true"} {
		refuse(t, Options{URL: u, Allow: allowPublic}, Unsupported, "Options.Allow")
	}
	if child.LiveChildren() != 0 {
		t.Errorf("%d children left", child.LiveChildren())
	}
}

func TestProxyIsForFFmpegOnly(t *testing.T) {
	target, err := url.Parse("http://admin:geheim@127.0.0.1:1/x.mp4")
	if err != nil {
		t.Fatal(err)
	}
	fail := func(err error) { t.Error(err) }
	p, l, err := newProxy(t.Context(), &dialer{fail: fail}, target)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	ask := func(user *url.Userinfo) *http.Response {
		c := http.Client{
			Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.addr, User: user}),
				DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		resp, err := c.Get("http://" + placeholderHost + "/x.mp4")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for _, user := range []*url.Userinfo{nil, url.UserPassword("ffmpeg", "x"), url.UserPassword("ffmpeg", "")} {
		if resp := ask(user); resp.StatusCode != http.StatusProxyAuthRequired ||
			strings.Contains(fmt.Sprint(resp), "geheim") {
			t.Errorf("%v: %+v", user, resp)
		}
	}
	if resp := ask(url.UserPassword("ffmpeg", p.password)); resp.Header.Get("Location") != target.String() {
		t.Errorf("%+v", resp)
	}
}

// A proxy of the environment is used, except where addresses are checked.
func TestParentProxy(t *testing.T) {
	var asked atomic.Pointer[http.Request]
	parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Store(q)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer parent.Close()
	parentURL, err := url.Parse(strings.Replace(parent.URL, "://", "://me:geheim@", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"http", "https"} {
		p, l, err := newProxy(t.Context(), &dialer{}, &url.URL{})
		if err != nil {
			t.Fatal(err)
		}
		p.parent = http.ProxyURL(parentURL)
		c := http.Client{Transport: &http.Transport{
			Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.addr,
				User: url.UserPassword("ffmpeg", p.password)}),
			DisableKeepAlives: true,
		}}
		resp, err := c.Get(scheme + "://camera.invalid/x.mp4")
		if err == nil {
			_ = resp.Body.Close()
		}
		q := asked.Swap(nil)
		if q == nil || !strings.HasPrefix(q.Host, "camera.invalid") ||
			q.Header.Get("Proxy-Authorization") != "Basic bWU6Z2VoZWlt" {
			t.Errorf("%s: %+v, %v", scheme, q, err)
		}
		l.close()
	}
	if p, l, err := newProxy(t.Context(), &dialer{allow: allowPublic}, &url.URL{}); err != nil || p.parent != nil {
		t.Error("a proxy that looks names up elsewhere was taken where addresses are checked")
	} else {
		l.close()
	}
}

// readAsFFmpeg returns the status codes found by ffmpeg 5.1 in data from an RTSP server.
func readAsFFmpeg(b []byte) (status []string) {
	next := func() (c byte, ok bool) {
		if len(b) > 0 {
			c, ok, b = b[0], true, b[1:]
		}
		return c, ok
	}
	skip := func(n int) { b = b[min(n, len(b)):] }
	for len(b) > 0 {
		length := 0
		for lines := 0; ; {
			var line []byte
			for {
				c, ok := next()
				if !ok || c == '\n' {
					break
				}
				if c == '$' && len(line) == 0 {
					if len(b) < 3 {
						return status
					}
					skip(3 + int(b[1])<<8 + int(b[2]))
				} else if c != '\r' {
					line = append(line, c)
				}
			}
			if len(line) == 0 {
				break
			}
			if fields := strings.Fields(string(line)); lines == 0 && len(fields) > 1 &&
				strings.HasPrefix(fields[0], "RTSP/") {
				status = append(status, fields[1])
			} else if rest, ok := bytes.CutPrefix(bytes.ToLower(line), []byte("content-length:")); ok && lines > 0 {
				_, _ = fmt.Sscan(string(rest), &length)
			}
			lines++
		}
		skip(max(length, 0))
	}
	return status
}

// Whatever a server sends, ffmpeg finds no redirect in the copied bytes, and nothing is added.
func FuzzCopyReplies(f *testing.F) {
	const ok, found = "RTSP/1.0 200 OK\r\nCSeq: 1\r\n", "RTSP/1.0 302 Found\r\nLocation: rtsp://127.0.0.2/\r\n\r\n"
	for _, s := range []string{
		ok + "\r\n" + found, ok + "Content-Length: 3\r\n\r\nabc" + found, "$\x00\x00\x02ab" + found,
		"$\x00\x00\x00" + found, "\r\n" + found, " " + found,
		"RT\rSP/1.0 302 Found\r\n\r\n", "RTSP/1.0\t302 Found\r\n\r\n", "RTSP/1.0  302 Found\r\n\r\n",
		ok + "$\x00\x00\x02\r\n\r\n" + found,
		ok + "Content-Length : 100\r\n\r\n" + found, ok + " Content-Length: 100\r\n\r\n" + found,
		ok + "Content-Length: 1\r\nContent-Length: 100\r\n\r\na" + found,
		ok + "Content-Length: 100x\r\n\r\n" + found, "OPTIONS * RTSP/1.0\r\n\r\n" + found,
		ok + strings.Repeat("x", 5000) + "\r\n\r\n" + found, ok + "\r" + "\r\n" + found,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		err := copyReplies(&out, bufio.NewReader(bytes.NewReader(b)), new(atomic.Bool))
		if err == nil || !bytes.HasPrefix(b, out.Bytes()) {
			t.Errorf("%v; %q is no beginning of %q", err, out.Bytes(), b)
		}
		for _, s := range readAsFFmpeg(out.Bytes()) {
			if strings.HasPrefix(s, "3") && len(s) == 3 {
				t.Errorf("a redirect in %q", out.Bytes())
			}
		}
	})
}

// An RTMP source with a secret returns its first frame after one second of video. The publisher sends four seconds,
// then stays connected without sending. The rate is known by then.
func TestSecretRTMPStartsSoon(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "rtmp://" + l.Addr().String() + "/live/x?token=abcdef12"
	_ = l.Close()
	publisher := exec.CommandContext(t.Context(), testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-f",
		"rawvideo", "-pix_fmt", "yuv420p", "-video_size", "160x120", "-framerate", "15", "-i", "pipe:0",
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-threads", "1", "-flush_packets", "1",
		"-f", "flv", "-listen", "1", address)
	in, err := publisher.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Start(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = in.Write(make([]byte, 64*160*120*3/2))
	}()
	t.Cleanup(func() {
		_ = publisher.Process.Kill()
		_ = publisher.Wait()
		<-wrote
	})
	for {
		r, err := Open(t.Context(), Options{URL: address, StartTimeout: 15 * time.Second})
		if KindOf(err) == Refused { // the publisher does not listen yet
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if fps := r.Info().FPS; fps != 15 {
			t.Errorf("%v fps", fps)
		}
		_ = r.Close()
		return
	}
}

// A proxy or relay accepts no more connections after the end of its context, even if never closed.
func TestLoopbackEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listen(ctx, func(context.Context, *net.TCPConn) {})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	l.wg.Wait()
	if conn, err := net.Dial("tcp", l.addr); err == nil {
		_ = conn.Close()
		t.Error("it accepts a connection")
	}
	l.close()
}
