package video

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	secrets "millrace/internal/secret"
)

const (
	// placeholderHost replaces the source's host on the command line. Names under .invalid never exist.
	placeholderHost = "source.invalid"
	// maxHead bounds the head of a request, in bytes.
	maxHead = 64 << 10
	// maxRequests bounds ffmpeg's requests before the first frame. A playlist with 50 variants needs four requests
	// for each variant. A playlist that leads to itself would be read again and again, until memory runs out.
	maxRequests = 256
)

// proxy is the HTTP proxy of one source. The proxy redirects ffmpeg to the source's address, and connects ffmpeg to
// this address, to further redirects and to entries of playlists, where allowed. Responses are not changed, but the
// source fails when a server answers a request for a part in the middle of a file with the whole file: ffmpeg would
// read the wrong bytes. The proxy serves the processes of ffmpeg. Other clients, and all clients where the kernel
// does not reveal the owner of a connection, must present a password of the proxy; ffmpeg has the password in its
// environment. ffmpeg sends the password only when challenged, and gives up when challenged at a request for a part
// of a file, possibly the first request.
type proxy struct {
	*dialer
	source   string
	password string
	requests atomic.Int64
	// parent returns the parent proxy for a request; nil for none.
	parent func(*http.Request) (*url.URL, error)
}

func newProxy(ctx context.Context, d *dialer, source *url.URL) (*proxy, *loopback, error) {
	p := &proxy{dialer: d, source: source.String(), password: rand.Text()}
	if d.allow == nil { // a parent proxy would look names up, so addresses could not be checked
		p.parent = http.ProxyFromEnvironment
	}
	l, err := listen(ctx, p.serve)
	return p, l, err
}

// env makes ffmpeg use the proxy for all requests.
func (p *proxy) env(addr string) []string {
	return []string{"http_proxy=http://ffmpeg:" + p.password + "@" + addr, "no_proxy="}
}

// serve answers requests until a request must be forwarded. Later requests on the connection are forwarded too.
func (p *proxy) serve(ctx context.Context, conn *net.TCPConn) {
	limit := &io.LimitedReader{R: conn}
	in := bufio.NewReader(limit)
	own := sync.OnceValue(func() bool { return p.isFFmpeg(ctx, conn) })
	for {
		limit.N = maxHead
		r, err := http.ReadRequest(in)
		switch {
		case err != nil:
			return
		case !p.authorized(r.Header.Get("Proxy-Authorization")) && !own():
			err = answer(conn, "407 Proxy Authentication Required", `Proxy-Authenticate: Basic realm="millrace"`)
		case r.URL.Hostname() == placeholderHost:
			err = answer(conn, "302 Found", "Location: "+p.source)
		default:
			p.forward(ctx, conn, in, limit, r)
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) authorized(auth string) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ffmpeg:"+p.password))
	return secrets.Equal(auth, want)
}

func answer(w io.Writer, status, header string) error {
	_, err := fmt.Fprintf(w, "HTTP/1.1 %s\r\n%s\r\nContent-Length: 0\r\n\r\n", status, header)
	return err
}

// forward connects ffmpeg to the host of the request.
func (p *proxy) forward(ctx context.Context, conn *net.TCPConn, in *bufio.Reader, limit *io.LimitedReader,
	r *http.Request) {
	if p.tooMany() {
		return
	}
	host := r.URL.Host
	parent := p.parentFor(r)
	up, err := p.dial(ctx, nextHop(r, parent))
	if err != nil {
		// ffmpeg repeats the status in its messages.
		_ = answer(conn, "502 "+dialMessage(err), "Connection: close")
		return
	}
	defer closeWith(ctx, up)()
	begin, part := partOf(r)
	if r.Close = part && begin == 0; r.Close { // the next part is then the first request of its connection
		r.Header.Del("Connection")
	}
	if r.Method == http.MethodConnect && parent == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\n")
	} else {
		err = writeRequest(up, r, parent)
	}
	if err != nil {
		return
	}
	replied := make(chan struct{})
	defer func() {
		_, _ = up.Close(), conn.Close()
		<-replied
	}()
	go func() {
		defer close(replied)
		from := io.Reader(up)
		if begin > 0 {
			head := bufio.NewReader(up)
			if line, _ := head.Peek(len("HTTP/1.1 200")); bytes.HasSuffix(line, []byte(" 200")) {
				p.fail(p.src.fail(Unsupported, noParts, nil))
				_ = conn.Close()
				return
			}
			from = head
		}
		if _, err := io.Copy(conn, from); err != nil {
			_ = conn.SetLinger(0) // resets ffmpeg's connection like the server's
			_ = conn.Close()
			return
		}
		_ = conn.CloseWrite()
	}()
	if r.Method == http.MethodConnect {
		limit.N = math.MaxInt64
		_, _ = io.Copy(up, in)
		return
	}
	for {
		limit.N = maxHead
		if r, err = http.ReadRequest(in); err != nil || r.URL.Host != host || p.tooMany() ||
			writeRequest(up, r, parent) != nil {
			return
		}
	}
}

// partOf returns the offset of the part of a file requested for an entry of a playlist: a range with an end. When
// seeking, ffmpeg requests ranges without an end.
func partOf(r *http.Request) (begin int64, part bool) {
	var end int64
	n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &begin, &end)
	if n != 2 {
		return 0, false
	}
	return begin, true
}

// tooMany counts a request. More than maxRequests before the first frame end the source.
func (p *proxy) tooMany() bool {
	if p.playing.Load() || p.requests.Add(1) <= maxRequests {
		return false
	}
	p.fail(p.src.fail(Unsupported, fmt.Sprintf("it leads to more than %d requests before its first frame: a "+
		"playlist that refers to itself is not read", maxRequests), nil))
	return true
}

// parentFor returns the proxy named by the environment for a request; nil for none.
func (p *proxy) parentFor(r *http.Request) *url.URL {
	if p.parent == nil {
		return nil
	}
	u := *r.URL
	if r.Method == http.MethodConnect {
		u.Scheme = SchemeHTTPS
	}
	parent, err := p.parent(&http.Request{URL: &u})
	if err != nil || parent == nil || parent.Scheme != SchemeHTTP {
		return nil // ffmpeg supports no other kind of proxy
	}
	return parent
}

// nextHop returns the address to connect to.
func nextHop(r *http.Request, parent *url.URL) string {
	u := r.URL
	if parent != nil {
		u = parent
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// writeRequest writes a request in the form for a server or for a parent proxy.
func writeRequest(up net.Conn, r *http.Request, parent *url.URL) error {
	r.Header.Del("Proxy-Authorization")
	if parent == nil {
		return r.Write(up)
	}
	if user := parent.User; user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+
			base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	return r.WriteProxy(up)
}
