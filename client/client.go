package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millrace/internal/oip"
	"millrace/stream"
)

// What a server says of itself and its models.
type (
	// ServerMetadata names a server, its version and protocol extensions.
	ServerMetadata = oip.ServerMetadata
	// Metadata describes a model: names, datatypes and shapes of its inputs and
	// outputs; -1 is a free dimension, and the first one of a model that batches.
	Metadata = oip.ModelMetadata
	// Tensor describes an input or output of a model.
	Tensor = oip.TensorMetadata
	// Entry is a row of the repository's index: READY, LOADING or UNAVAILABLE,
	// and why.
	Entry = oip.IndexRow
)

// maxReply bounds the reply to a request.
const maxReply = 1 << 30

// Client is a connection to one server. It is safe for concurrent use. Close
// gives idle connections back.
type Client struct {
	base *url.URL
	http *http.Client
}

// New makes a client for a server at addr: "127.0.0.1:8000" or
// "https://host/prefix". It does not connect.
func New(addr string) (*Client, error) {
	text := addr
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, stream.Errorf(stream.InvalidArgument, "addr", "%q is not the address of a server: want HOST:PORT or http://HOST:PORT", addr)
	}
	if h := u.Hostname(); h == "" || h == "0.0.0.0" || h == "::" { // what a server listens at is no place to go to
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return &Client{base: u, http: &http.Client{Transport: t}}, nil
}

// Close closes the connections that are idle. Streams go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Addr is the address of the server, as a URL.
func (c *Client) Addr() string { return c.base.String() }

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

// Health is the condition of a server.
type Health struct {
	Live  bool `json:"live"`
	Ready bool `json:"ready"` // every configured model has a worker
}

// Health asks for the server's condition. A server that answers at all is live.
func (c *Client) Health(ctx context.Context) (Health, error) {
	_, status, err := c.do(ctx, http.MethodGet, c.url(nil, "v2", "health", "ready"), nil, nil)
	if err != nil && status != http.StatusServiceUnavailable {
		return Health{}, err
	}
	return Health{Live: true, Ready: err == nil}, nil
}

// Server asks for the server's name and version.
func (c *Client) Server(ctx context.Context) (ServerMetadata, error) {
	body, _, err := c.do(ctx, http.MethodGet, c.url(nil, "v2"), nil, nil)
	if err != nil {
		return ServerMetadata{}, err
	}
	m, err := oip.ParseServerMetadata(body)
	return m, notOurs(err)
}

// Metadata describes a loaded model; version "" is any.
func (c *Client) Metadata(ctx context.Context, model, version string) (Metadata, error) {
	body, _, err := c.do(ctx, http.MethodGet, c.url(nil, modelPath(model, version)...), nil, nil)
	if err != nil {
		return Metadata{}, err
	}
	m, err := oip.ParseModelMetadata(body)
	return m, notOurs(err)
}

// Index lists every model that the server has or could load.
func (c *Client) Index(ctx context.Context) ([]Entry, error) { return c.index(ctx, nil) }

// Models lists the models that are ready.
func (c *Client) Models(ctx context.Context) ([]Entry, error) {
	return c.index(ctx, []byte(`{"ready":true}`))
}

func (c *Client) index(ctx context.Context, ask []byte) ([]Entry, error) {
	body, _, err := c.do(ctx, http.MethodPost, c.url(nil, "v2", "repository", "index"), jsonHeader, ask)
	if err != nil {
		return nil, err
	}
	rows, err := oip.ParseIndex(body)
	return rows, notOurs(err)
}

// Load loads a model with parameters that overlay its configuration, and returns
// the name of its endpoint. See the guide on models for "share" and "swap".
func (c *Client) Load(ctx context.Context, model string, params stream.Params) (endpoint string, err error) {
	var body []byte
	if len(params) > 0 {
		if body, err = json.Marshal(map[string]any{"parameters": params}); err != nil {
			return "", stream.Errorf(stream.InvalidArgument, "parameters", "cannot be written as JSON: %w", err)
		}
	}
	reply, _, err := c.do(ctx, http.MethodPost, c.url(nil, "v2", "repository", "models", model, "load"), jsonHeader, body)
	if err != nil {
		return "", err
	}
	var loaded struct {
		Endpoint string `json:"endpoint"`
	}
	if err := json.Unmarshal(reply, &loaded); err != nil {
		return "", notOurs(err)
	}
	return loaded.Endpoint, nil
}

// Unload removes one worker of an endpoint; the last removes the endpoint.
func (c *Client) Unload(ctx context.Context, endpoint string) error {
	_, _, err := c.do(ctx, http.MethodPost, c.url(nil, "v2", "repository", "models", endpoint, "unload"), jsonHeader, nil)
	return err
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// do sends a request and returns the reply's body. An answer that is no success
// is an error, with its status.
func (c *Client) do(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) ([]byte, int, error) {
	reply, h, status, err := c.exchange(ctx, method, u, header, body)
	_ = h
	return reply, status, err
}

func (c *Client) exchange(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) ([]byte, http.Header, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, 0, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, 0, c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply, err := readBody(resp)
	if err != nil {
		return nil, nil, 0, c.unreachable(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return reply, resp.Header, resp.StatusCode, toldBy(resp.StatusCode, reply)
	}
	return reply, resp.Header, resp.StatusCode, nil
}

func readBody(resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 && n <= maxReply {
		body := make([]byte, n)
		_, err := io.ReadFull(resp.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err == nil && len(body) > maxReply {
		err = errors.New("the reply is larger than 1GiB")
	}
	return body, err
}

// unreachable classifies what kept a request from being answered.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("client: %w", cause)
	}
	return stream.Errorf(stream.Unavailable, "", "the server at %s cannot be asked: %w", c.base.Host, bare(err))
}

// bare takes method and address off, which the message has already.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// toldBy reads an error reply.
func toldBy(status int, body []byte) error {
	var told struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	if json.Unmarshal(body, &told) == nil && told.Error != "" {
		if told.Code == "" {
			told.Code = string(codeOf(status))
		}
		return &stream.Error{Code: stream.Code(told.Code), Msg: told.Error}
	}
	return stream.Errorf(codeOf(status), "", "the server answered %d %s", status, http.StatusText(status))
}

// codeOf is for answers that do not come from a Millrace server: a proxy's, say.
func codeOf(status int) stream.Code {
	switch status {
	case http.StatusUnauthorized:
		return stream.Unauthenticated
	case http.StatusForbidden:
		return stream.PermissionDenied
	case http.StatusNotFound:
		return stream.NotFound
	case http.StatusConflict:
		return stream.Conflict
	case http.StatusRequestEntityTooLarge:
		return stream.TooLarge
	case http.StatusTooManyRequests:
		return stream.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return stream.Unavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return stream.Timeout
	}
	if status/100 == 4 {
		return stream.InvalidArgument
	}
	return stream.Internal
}

func notOurs(err error) error {
	if err == nil {
		return nil
	}
	return stream.Errorf(stream.Internal, "", "the server's answer is not understood: %w", err)
}

// Timing tells where the time of a frame went. A part that was not reached is 0.
type Timing struct {
	Received time.Time     // the server's clock; zero when it was not told
	Queue    time.Duration // until it was bound to a batch
	Prepare  time.Duration // until the batch's run began
	Run      time.Duration
	Total    time.Duration // from receipt to result
}
