package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/stream"
)

// REST is a target of inference requests over HTTP. Each frame is one POST. A stream has as many connections as
// requests in flight.
type REST struct {
	URL     string // http://host:port/v2/models/NAME/infer?options; with Element, at least one option
	Header  map[string]string
	Tensor  bool          // the frame is the bytes of one tensor, not a picture
	Timeout time.Duration // of one request; 0 = DefaultTimeout
	// bytes of an element, for the option shape: the number of elements of the frame; 0 = the shape is in URL or in
	// the model
	Element  int
	InFlight int         // requests in flight on one stream; 0 = DefaultInFlight
	TLS      *tls.Config // nil = by the system's certificate authorities
}

// DefaultTimeout is how long a REST request may take.
const DefaultTimeout = 30 * time.Second

var _ Target = REST{}

// Open implements Target.
func (t REST) Open(ctx context.Context, i int, ended func(Ending)) (Conn, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	host, secure := u.Host, u.Scheme == "https"
	if u.Port() == "" {
		host = fasthttp.AddMissingPort(host, secure)
	}
	timeout := t.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	c := &restConn{conns: map[*trackedConn]struct{}{}}
	h := &fasthttp.HostClient{
		Addr: host, IsTLS: secure, TLSConfig: t.TLS, MaxConns: MaxStreams, ReadTimeout: timeout, WriteTimeout: timeout,
		// A request sent twice would be counted once.
		MaxIdemponentCallAttempts: 1, RetryIf: func(*fasthttp.Request) bool { return false },
		MaxIdleConnDuration: time.Minute, NoDefaultUserAgentHeader: true, DisablePathNormalizing: true,
		Dial: c.dial,
	}
	c.client = h
	call := func(_ context.Context, _ int, f *Frame) (int, error) { return 0, t.post(h, f, timeout) }
	c.Conn, err = Calls{Call: call, InFlight: t.InFlight}.Open(ctx, i, ended)
	return c, err
}

// restConn keeps its connections, so that Close can end waiting requests.
type restConn struct {
	Conn
	client *fasthttp.HostClient

	mu     sync.Mutex
	conns  map[*trackedConn]struct{}
	closed bool
}

type trackedConn struct {
	net.Conn
	owner *restConn
}

// Close implements net.Conn.
func (t *trackedConn) Close() error {
	t.owner.mu.Lock()
	delete(t.owner.conns, t)
	t.owner.mu.Unlock()
	return t.Conn.Close()
}

func (c *restConn) dial(addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.conns[t] = struct{}{}
	return t, nil
}

// Close implements Conn.
func (c *restConn) Close() error {
	c.client.CloseIdleConnections()
	c.mu.Lock()
	c.closed = true
	for t := range c.conns {
		t.Conn.Close() // the read fails, and the reader closes t
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// post sends one request. If the server refuses the request, the error has the server's code.
func (t REST) post(h *fasthttp.HostClient, f *Frame, timeout time.Duration) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	if t.Element > 0 {
		req.SetRequestURI(fmt.Sprintf("%s&shape=%d", t.URL, len(f.Data)/t.Element))
	} else {
		req.SetRequestURI(t.URL)
	}
	for k, v := range t.Header {
		req.Header.Set(k, v)
	}
	switch {
	case t.Tensor:
		req.Header.SetContentType("application/octet-stream")
		req.Header.Set("Inference-Header-Content-Length", "0")
	case f.Codec == stream.Opaque:
		req.Header.SetContentType("application/octet-stream")
	default:
		req.Header.SetContentType("image/" + f.Codec.String())
	}
	req.SetBodyRaw(f.Data)
	if err := h.DoTimeout(req, resp, timeout); err != nil {
		return stream.Errorf(codeOf(err), "", "%w", err)
	}
	if resp.StatusCode() == fasthttp.StatusOK {
		return nil
	}
	var refusal struct {
		Code  stream.Code `json:"code"`
		Error string      `json:"error"`
	}
	_ = json.Unmarshal(resp.Body(), &refusal) // a reply of another format has no code
	code := cmp.Or(refusal.Code, stream.Code(fmt.Sprintf("http_%d", resp.StatusCode())))
	return stream.Errorf(code, "", "%.*s", maxMessage, cmp.Or(refusal.Error, string(resp.Body())))
}

// Connection is the code of a request whose connection failed.
const Connection stream.Code = "connection"

func codeOf(err error) stream.Code {
	var ne net.Error
	if errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &ne) && ne.Timeout() {
		return stream.Timeout
	}
	return Connection
}
