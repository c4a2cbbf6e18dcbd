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
	// aliasHost stands for the source on the command line. No name under .invalid ever exists.
	aliasHost = "source.invalid"
	// maxHead bounds the head of a request, in bytes.
	maxHead = 64 << 10
)

// proxy is the HTTP proxy of one source. It tells ffmpeg the source's address by a redirect, and connects it to
// whatever that, a further redirect or a playlist leads to, if that is allowed. What is answered passes through as it
// is. Only who knows the proxy's own password, which stands in the environment of ffmpeg, may use it.
type proxy struct {
	*dialer
	source   string
	password string
	// parent is the proxy behind this one; nil for none.
	parent func(*http.Request) (*url.URL, error)
}

func newProxy(ctx context.Context, d *dialer, source *url.URL) (*proxy, *local, error) {
	p := &proxy{dialer: d, source: source.String(), password: rand.Text()}
	if d.allow == nil { // who looks names up elsewhere cannot check addresses
		p.parent = http.ProxyFromEnvironment
	}
	l, err := listen(ctx, p.serve)
	return p, l, err
}

// env has ffmpeg use the proxy, for all it does.
func (p *proxy) env(addr string) []string {
	return []string{"http_proxy=http://ffmpeg:" + p.password + "@" + addr, "no_proxy="}
}

// serve answers requests until one is to be passed on; those after it go the same way.
func (p *proxy) serve(ctx context.Context, conn *net.TCPConn) {
	limit := &io.LimitedReader{R: conn}
	in := bufio.NewReader(limit)
	for {
		limit.N = maxHead
		r, err := http.ReadRequest(in)
		switch {
		case err != nil:
			return
		case !p.knows(r.Header.Get("Proxy-Authorization")):
			err = answer(conn, "407 Proxy Authentication Required", `Proxy-Authenticate: Basic realm="millrace"`)
		case r.URL.Hostname() == aliasHost:
			err = answer(conn, "302 Found", "Location: "+p.source)
		default:
			p.pass(ctx, conn, in, limit, r)
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) knows(auth string) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ffmpeg:"+p.password))
	return subtle.ConstantTimeCompare([]byte(auth), []byte(want)) == 1
}

func answer(w io.Writer, status, header string) error {
	_, err := fmt.Fprintf(w, "HTTP/1.1 %s\r\n%s\r\nContent-Length: 0\r\n\r\n", status, header)
	return err
}

// pass connects ffmpeg to the host of its request.
func (p *proxy) pass(ctx context.Context, conn *net.TCPConn, in *bufio.Reader, limit *io.LimitedReader, r *http.Request) {
	host := r.URL.Host
	parent := p.behind(r)
	up, err := p.dial(ctx, hop(r, parent))
	if err != nil {
		// ffmpeg repeats the status in its own messages.
		_ = answer(conn, "502 "+words(err), "Connection: close")
		return
	}
	defer closeWith(ctx, up)()
	if r.Method == http.MethodConnect && parent == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\n")
	} else {
		err = forward(up, r, parent)
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
			_ = conn.SetLinger(0) // a connection that was reset stays one
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
		if r, err = http.ReadRequest(in); err != nil || r.URL.Host != host || forward(up, r, parent) != nil {
			return
		}
	}
}

// behind returns the proxy that the environment names for a request; nil for none.
func (p *proxy) behind(r *http.Request) *url.URL {
	if p.parent == nil {
		return nil
	}
	u := *r.URL
	if r.Method == http.MethodConnect {
		u.Scheme = SchemeHTTPS
	}
	parent, err := p.parent(&http.Request{URL: &u})
	if err != nil || parent == nil || parent.Scheme != SchemeHTTP {
		return nil // ffmpeg knows no other kind either
	}
	return parent
}

// hop is the address to connect to.
func hop(r *http.Request, parent *url.URL) string {
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

// forward sends a request on, in the form for a server or for a parent.
func forward(up net.Conn, r *http.Request, parent *url.URL) error {
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
