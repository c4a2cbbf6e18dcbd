package video

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
)

const (
	// placeholderHost replaces the source's host on the command line. Names under .invalid never exist.
	placeholderHost = "source.invalid"
	// maxHead bounds the head of a request, in bytes.
	maxHead = 64 << 10
)

// proxy is the HTTP proxy of one source. It gives ffmpeg the source's address in a redirect, and connects it to
// that address, further redirects and entries of playlists, where they are allowed. Responses are not changed. It
// requires a password of its own, which is in ffmpeg's environment.
type proxy struct {
	*dialer
	source   string
	password string
	// parent returns the proxy that this one uses for a request; nil for none.
	parent func(*http.Request) (*url.URL, error)
}

func newProxy(ctx context.Context, d *dialer, source *url.URL) (*proxy, *loopback, error) {
	p := &proxy{dialer: d, source: source.String(), password: rand.Text()}
	if d.allow == nil { // behind another proxy, which looks names up, addresses could not be checked
		p.parent = http.ProxyFromEnvironment
	}
	l, err := listen(ctx, p.serve)
	return p, l, err
}

// env makes ffmpeg use the proxy for all requests.
func (p *proxy) env(addr string) []string {
	return []string{"http_proxy=http://ffmpeg:" + p.password + "@" + addr, "no_proxy="}
}

// serve answers requests up to the first that must be forwarded. Later ones on the connection are forwarded too.
func (p *proxy) serve(ctx context.Context, conn *net.TCPConn) {
	limit := &io.LimitedReader{R: conn}
	in := bufio.NewReader(limit)
	for {
		limit.N = maxHead
		r, err := http.ReadRequest(in)
		switch {
		case err != nil:
			return
		case !p.authorized(r.Header.Get("Proxy-Authorization")):
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
	return subtle.ConstantTimeCompare([]byte(auth), []byte(want)) == 1
}

func answer(w io.Writer, status, header string) error {
	_, err := fmt.Fprintf(w, "HTTP/1.1 %s\r\n%s\r\nContent-Length: 0\r\n\r\n", status, header)
	return err
}

// forward connects ffmpeg to the host of its request.
func (p *proxy) forward(ctx context.Context, conn *net.TCPConn, in *bufio.Reader, limit *io.LimitedReader, r *http.Request) {
	host := r.URL.Host
	parent := p.parentFor(r)
	up, err := p.dial(ctx, nextHop(r, parent))
	if err != nil {
		// ffmpeg repeats the status in its own messages.
		_ = answer(conn, "502 "+dialMessage(err), "Connection: close")
		return
	}
	defer closeWith(ctx, up)()
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
		if _, err := io.Copy(conn, up); err != nil {
			_ = conn.SetLinger(0) // resets ffmpeg's connection as the other one was
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
		if r, err = http.ReadRequest(in); err != nil || r.URL.Host != host || writeRequest(up, r, parent) != nil {
			return
		}
	}
}

// parentFor returns the proxy that the environment names for a request; nil for none.
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
		return nil // ffmpeg supports no other kind either
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
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	return r.WriteProxy(up)
}
