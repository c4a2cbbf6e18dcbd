package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"millrace/stream"
)

// ServerMetadata names a server, its version and protocol extensions.
type ServerMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// Metadata describes a model: names, datatypes and shapes of its inputs and
// outputs.
type Metadata struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions,omitempty"`
	Platform string   `json:"platform"`
	Inputs   []Tensor `json:"inputs"`
	Outputs  []Tensor `json:"outputs"`
}

// Tensor describes an input or output of a model. A dimension of -1 may have any size;
// the first dimension of a model with batches is the number of rows.
type Tensor struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

// Entry is a row of the repository's index: a model, its state (READY, LOADING or UNAVAILABLE), and the reason of the
// state.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// Loaded is the result of a load: the name of the endpoint, and whether the endpoint was loaded (a new endpoint),
// reloaded (because of a changed file or setting, a failed worker, or a requested swap), scaled (only the number of
// workers has changed) or is unchanged. Result is empty when the server omits the result, like other servers with the
// same protocol.
type Loaded struct {
	Endpoint string `json:"endpoint"`
	Result   string `json:"result"`
}

// maxReply bounds the size of a reply, in bytes.
const maxReply = 1 << 30

// Client sends requests to one server, over reused connections. A Client is safe for concurrent use. Close closes
// idle connections.
type Client struct {
	base *url.URL
	at   string // the address in errors
	http *http.Client
	tls  *tls.Config // nil = by the system's certificate authorities

	authorization string // the value of the header Authorization; "" = none
	// dialTCP dials the connections of sessions, including connections to a unix socket.
	dialTCP func(ctx context.Context, network, addr string) (net.Conn, error)
}

// New returns a client for a server at addr: "127.0.0.1:8000", "https://host/prefix", or "unix:/path" for a unix
// socket, for example the socket of management.address. New does not connect.
func New(addr string) (*Client, error) { return NewTLS(addr, nil) }

// NewTLS is New for a server with TLS. config determines the verification of the server's certificate; nil = by the
// system's certificate authorities.
func NewTLS(addr string, config *tls.Config) (*Client, error) {
	return NewWith(addr, Options{TLS: config})
}

// Options are the options of a client. All are optional.
type Options struct {
	// TLS says how to verify the server's certificate; nil = by the system's certificate
	// authorities.
	TLS *tls.Config
	// Token is an API key of the server, sent with each request and each handshake of a session as Authorization:
	// Bearer. Without TLS, other hosts on the network can read the key.
	Token string
}

// NewWith is New with options.
func NewWith(addr string, opts Options) (*Client, error) {
	if strings.ContainsFunc(opts.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, stream.Errorf(stream.InvalidArgument, "token",
			"has other characters than letters, digits and signs of ASCII")
	}
	text, config := addr, opts.TLS
	path, local := strings.CutPrefix(addr, "unix:")
	if local {
		if !strings.HasPrefix(path, "/") {
			return nil, stream.Errorf(stream.InvalidArgument, "addr",
				"%q is not the address of a unix socket: want unix:/PATH", addr)
		}
		text, config = "http://localhost", nil // the host in requests
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !isPort(u.Port()) || u.Scheme != "http" && u.Scheme != "https" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, stream.Errorf(stream.InvalidArgument, "addr",
			"%q is not the address of a server: want HOST:PORT or http://HOST:PORT", addr)
	}
	if h := u.Hostname(); h == "" || h == "0.0.0.0" || h == "::" { // a server listening at all addresses
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // tensors shrink little, and compression takes the server's time
	t.MaxIdleConnsPerHost = 64
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	c := &Client{base: u, at: u.Host, http: &http.Client{Transport: t}, tls: config,
		dialTCP: new(net.Dialer).DialContext}
	if local {
		c.at = addr
		c.dialTCP = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		t.DialContext, t.Proxy = c.dialTCP, nil
	}
	if opts.Token != "" {
		c.authorization = "Bearer " + opts.Token
		c.http.CheckRedirect = c.redirect
	}
	return c, nil
}

// redirect is called before a redirect is followed. The key is sent to the server alone.
func (c *Client) redirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != c.base.Scheme || req.URL.Host != c.base.Host {
		req.Header.Del("Authorization")
	}
	if len(via) >= 10 {
		return errors.New("the server redirects more than ten times")
	}
	return nil
}

// authorize adds the token to the header of a request without Authorization.
func (c *Client) authorize(h http.Header) {
	if c.authorization != "" && h.Get("Authorization") == "" {
		h.Set("Authorization", c.authorization)
	}
}

// isPort reports whether port is empty or a port number.
func isPort(port string) bool {
	_, err := strconv.ParseUint(cmp.Or(port, "1"), 10, 16)
	return err == nil
}

// Close closes idle connections. Streams stay open.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Addr returns the address of the server, as a URL.
func (c *Client) Addr() string {
	if strings.HasPrefix(c.at, "unix:") {
		return c.at
	}
	return c.base.String()
}

func (c *Client) url(query url.Values, parts ...string) *url.URL {
	u := c.base.JoinPath(escape(parts)...)
	u.RawQuery = query.Encode()
	return u
}

func escape(parts []string) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = url.PathEscape(p)
	}
	return out
}

func modelPath(model, version string, rest ...string) []string {
	p := []string{"v2", "models", model}
	if version != "" {
		p = append(p, "versions", version)
	}
	return append(p, rest...)
}

// Health is the state of a server.
type Health struct {
	Live  bool `json:"live"`
	Ready bool `json:"ready"` // every configured model has a worker
}

// Health returns the server's state. A server that answers is live.
func (c *Client) Health(ctx context.Context) (Health, error) {
	r, err := c.do(ctx, http.MethodGet, c.url(nil, "v2", "health", "ready"), nil, nil)
	if err != nil && r.status != http.StatusServiceUnavailable {
		return Health{}, err
	}
	return Health{Live: true, Ready: err == nil}, nil
}

// Server asks for the server's name and version.
func (c *Client) Server(ctx context.Context) (ServerMetadata, error) {
	var m ServerMetadata
	err := c.doJSON(ctx, http.MethodGet, c.url(nil, "v2"), nil, &m)
	return m, err
}

// Metadata returns the description of a loaded model; version "" is any.
func (c *Client) Metadata(ctx context.Context, model, version string) (Metadata, error) {
	var m Metadata
	if model == "" {
		return m, errNoModel()
	}
	err := c.doJSON(ctx, http.MethodGet, c.url(nil, modelPath(model, version)...), nil, &m)
	return m, err
}

// OpenAPI returns the OpenAPI document of the server and its loaded models, in JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	var document json.RawMessage
	err := c.doJSON(ctx, http.MethodGet, c.url(nil, "openapi.json"), nil, &document)
	return document, err
}

// ProgramOpenAPI returns the OpenAPI document of the routes of a program, in JSON. The error has the code NotFound
// when the model is not a program.
func (c *Client) ProgramOpenAPI(ctx context.Context, program string) (json.RawMessage, error) {
	if program == "" {
		return nil, errNoModel()
	}
	var document json.RawMessage
	err := c.doJSON(ctx, http.MethodGet, c.url(nil, "apps", program, "openapi.json"), nil, &document)
	return document, err
}

// Index lists the loaded and the loadable models of the server.
func (c *Client) Index(ctx context.Context) ([]Entry, error) { return c.index(ctx, nil) }

// Models lists the ready models.
func (c *Client) Models(ctx context.Context) ([]Entry, error) {
	return c.index(ctx, []byte(`{"ready":true}`))
}

func (c *Client) index(ctx context.Context, body []byte) ([]Entry, error) {
	var rows []Entry
	err := c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "repository", "index"), body, &rows)
	return rows, err
}

// Load loads a model with parameters that overlay its configuration, and returns the endpoint and the change. See the
// guide on models for "share" and "swap".
func (c *Client) Load(ctx context.Context, model string, params stream.Params) (loaded Loaded, err error) {
	if model == "" {
		return loaded, errNoModel()
	}
	var body []byte
	if len(params) > 0 {
		if body, err = json.Marshal(map[string]any{"parameters": params}); err != nil {
			return loaded, stream.Errorf(stream.InvalidArgument, "parameters", "cannot be written as JSON: %w", err)
		}
	}
	err = c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "repository", "models", model, "load"), body, &loaded)
	return loaded, err
}

// Unload undoes one load of an endpoint: Unload removes a worker added with "share": false, or else the endpoint.
func (c *Client) Unload(ctx context.Context, endpoint string) error {
	if endpoint == "" {
		return errNoModel()
	}
	return c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "repository", "models", endpoint, "unload"), nil, nil)
}

// Scale sets the number of workers of a loaded model, which continues serving.
func (c *Client) Scale(ctx context.Context, endpoint string, instances int) error {
	if endpoint == "" {
		return errNoModel()
	}
	body, err := json.Marshal(map[string]int{"instances": instances})
	if err != nil {
		return err
	}
	return c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "workers", endpoint, "scale"), body, nil)
}

func errNoModel() error {
	return stream.Errorf(stream.InvalidArgument, "model", "is missing: want the name of a model")
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// doJSON sends a request with a JSON body (nil = none), and decodes the reply into to
// unless to is nil.
func (c *Client) doJSON(ctx context.Context, method string, u *url.URL, body []byte, to any) error {
	r, err := c.do(ctx, method, u, jsonHeader, body)
	if err != nil || to == nil {
		return err
	}
	return badReply(json.Unmarshal(r.body, to))
}

// httpReply is the server's reply to a request; status 0 = no reply.
type httpReply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request. A reply without a 2xx status is returned with an error.
func (c *Client) do(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) (r httpReply,
	err error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return r, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	maps.Copy(req.Header, header)
	resp, err := c.begin(req)
	if err != nil {
		return r, err
	}
	return c.finish(resp)
}

// Send sends a request to a route of the server that has no method of its own, such as "/v2/work/claims", with a body
// of size bytes (nil = none). Send returns when the head of the reply has arrived; the caller closes the body. A reply
// without a 2xx status is an error.
func (c *Client) Send(ctx context.Context, method, path string, header http.Header, body io.Reader,
	size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), body)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	maps.Copy(req.Header, header)
	resp, err := c.begin(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		_, err := c.finish(resp)
		return nil, err
	}
	return resp, nil
}

// begin sends a request, and returns when the head of the reply has arrived.
func (c *Client) begin(req *http.Request) (*http.Response, error) {
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(req.Context(), err)
	}
	return resp, nil
}

// finish reads and closes the body of a reply. A reply without a 2xx status is returned with an error.
func (c *Client) finish(resp *http.Response) (r httpReply, err error) {
	defer func() { _ = resp.Body.Close() }()
	if r.body, err = readBody(resp, maxReply); err != nil {
		return r, c.unreachable(resp.Request.Context(), err)
	}
	r.status, r.header = resp.StatusCode, resp.Header
	if r.status/100 != 2 {
		return r, replyError(r.status, r.header, r.body)
	}
	return r, nil
}

// readBody reads the body of a reply, of up to most bytes.
func readBody(resp *http.Response, most int64) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 && n <= most {
		body := make([]byte, n)
		_, err := io.ReadFull(resp.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("the reply is larger than %d bytes", most)
	}
	return body, err
}
