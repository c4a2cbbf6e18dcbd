package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// binaryExtension is the extension for tensors as raw bytes after the JSON.
const binaryExtension = "binary_tensor_data"

// headerLength is the header with the length of the JSON in a message with binary tensors.
const headerLength = "Inference-Header-Content-Length"

// maxJSON is the size limit of an answer beside the tensors.
const maxJSON = 1 << 20

// restProtocol speaks the protocol's REST form.
type restProtocol struct {
	l      *link
	base   string // of all addresses
	path   string // of the model
	http   *http.Client
	binary bool // the server has binaryExtension
}

var _ client = (*restProtocol)(nil)

func newREST(l *link, at address) (client, error) {
	t := &http.Transport{DialContext: l.dial, IdleConnTimeout: 15 * time.Second, MaxIdleConnsPerHost: 64,
		ResponseHeaderTimeout: 0, ForceAttemptHTTP2: true, DisableCompression: true}
	if at.encrypted() {
		var err error
		if t.TLSClientConfig, err = l.tls(); err != nil {
			return nil, err
		}
	}
	c := &restProtocol{l: l, base: at.scheme + "://" + at.host + at.path, http: &http.Client{
		Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.path = "/v2/models/" + url.PathEscape(l.model)
	if v := l.set.Version; v != "" {
		c.path += "/versions/" + url.PathEscape(v)
	}
	return c, nil
}

// tls returns the configuration of encrypted connections.
func (l *link) tls() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.set.CA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(l.set.CA)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "upstream.ca", "cannot be read: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, stream.Errorf(stream.InvalidArgument, "upstream.ca", "%s has no PEM certificate", l.set.CA)
	}
	return cfg, nil
}

// unreachable marks the error of a connection that could not be made, or broke. An error that would not pass by
// itself names the setting to change.
func unreachable(err error) error {
	own := (*stream.Error)(nil)
	var unknown x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unknown):
		return stream.Errorf(stream.Unavailable, "upstream.ca",
			"the other server's certificate is not signed by a known authority: name the authority's PEM file")
	case errors.As(err, &certificate):
		return stream.Errorf(stream.Unavailable, "upstream.address", "the other server's certificate does not fit: %w",
			err)
	case errors.As(err, &record):
		return stream.Errorf(stream.Unavailable, "upstream.address",
			"the other server does not speak TLS at that port: use http:// or grpc://")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

func (c *restProtocol) close() { c.http.CloseIdleConnections() }

// do sends a request and returns the answer with an open body, or the answer's error.
func (c *restProtocol) do(ctx context.Context, method, path string, header http.Header,
	body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	token, err := c.l.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		_ = resp.Body.Close()
		return nil, httpError(resp.StatusCode, text)
	}
	return resp, nil
}

// get reads a JSON answer into v; nil = ignore the answer.
func (c *restProtocol) get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxText+1))
	switch {
	case err != nil:
		return unreachable(err)
	case v == nil:
		return nil
	case len(text) > maxText:
		return stream.Errorf(stream.Unsupported, "upstream", "the answer to GET %s has more than %d bytes", path,
			maxText)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return stream.Errorf(stream.Unsupported, "upstream",
			"the answer to GET %s is not of the Open Inference Protocol: %w", path, err)
	}
	return nil
}

func (c *restProtocol) ready(ctx context.Context) error {
	err := c.get(ctx, c.path+"/ready", nil)
	var up *upstreamError
	if errors.As(err, &up) && up.code == stream.InvalidArgument { // some servers report an unready model by this code
		return &upstreamError{stream.Unavailable, up.text}
	}
	return err
}

func (c *restProtocol) describe(ctx context.Context) (*description, error) {
	var server oip.ServerMetadata
	if err := c.get(ctx, "/v2", &server); err != nil {
		return nil, err
	}
	c.binary = slices.Contains(server.Extensions, binaryExtension)
	var meta oip.ModelMetadata
	if err := c.get(ctx, c.path, &meta); err != nil {
		return nil, err
	}
	d := new(description)
	var err error
	if d.inputs, err = specs("inputs", meta.Inputs); err != nil {
		return nil, err
	}
	if d.outputs, err = specs("outputs", meta.Outputs); err != nil {
		return nil, err
	}
	var cfg struct {
		MaxBatch  int `json:"max_batch_size"`
		Sequences any `json:"sequence_batching"`
		Policy    struct {
			Decoupled bool `json:"decoupled"`
		} `json:"model_transaction_policy"`
	}
	err = c.get(ctx, c.path+"/config", &cfg)
	if known, err := tellsConfig(err); !known {
		return d, err
	}
	d.config = &modelConfig{cfg.MaxBatch, cfg.Policy.Decoupled, cfg.Sequences != nil}
	return d, nil
}

// tellsConfig reports, by the error of the request for a model's configuration, whether the server has answered; a
// server without the configuration extension refuses the request.
func tellsConfig(err error) (known bool, failed error) {
	var up *upstreamError
	if err == nil {
		return true, nil
	}
	if errors.As(err, &up) && (up.code == stream.NotFound || up.code == stream.Unsupported ||
		up.code == stream.InvalidArgument || up.code == stream.PermissionDenied) {
		return false, nil
	}
	return false, err
}

func (c *restProtocol) infer(ctx context.Context, k *call) error {
	r := oip.InferRequest{BinaryOutput: c.binary}
	for key, value := range withTimeout(ctx, k.params) {
		if p, ok := oip.ParamOf(key, value); ok {
			r.Params = append(r.Params, p)
		}
	}
	for _, t := range k.inputs {
		r.Inputs = append(r.Inputs, oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape,
			Data: t.Data})
	}
	raw := oip.NeverBinary
	if c.binary {
		raw = oip.AlwaysBinary
	}
	head, err := oip.AppendRequest(nil, &r, raw)
	if err != nil {
		return err
	}
	parts := oip.BinaryParts(nil, r.Inputs, raw)
	size := len(head)
	for _, p := range parts {
		size += len(p)
	}
	if err := k.charge(int64(size)); err != nil {
		return err
	}
	// One copy, because the transport may still read the body when the batch is reused.
	body := append(make([]byte, 0, size), head...)
	for _, p := range parts {
		body = append(body, p...)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if len(parts) > 0 {
		header.Set(headerLength, strconv.Itoa(len(head)))
		header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.do(ctx, http.MethodPost, c.path+"/infer", header, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return c.answer(resp, k)
}

// answer reads an answer to an inference request.
func (c *restProtocol) answer(resp *http.Response, k *call) error {
	body, err := c.read(resp, k)
	if err != nil {
		return err
	}
	headLen := -1
	if text := resp.Header.Get(headerLength); text != "" {
		if headLen, err = strconv.Atoi(text); err != nil || headLen <= 0 || headLen > len(body) {
			return stream.Errorf(stream.Internal, "", "the other server's answer has %s: %.32q", headerLength, text)
		}
	}
	var out oip.InferResponse
	alloc := func(n int) []byte {
		if k.charge(int64(n)) != nil {
			return nil
		}
		return make([]byte, n)
	}
	switch err := oip.DecodeResponse(&out, body, headLen, alloc, oip.Limits{}); {
	case errors.Is(err, oip.ErrMemory):
		return buf.ErrBudget
	case err != nil:
		return stream.Errorf(stream.Internal, "",
			"the other server's answer is not of the Open Inference Protocol: %w", err)
	}
	for _, t := range out.Outputs {
		k.outputs = append(k.outputs, stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype),
			Shape: t.Shape, Data: t.Data})
	}
	return nil
}

// read reads a body of at most upstream.max_message bytes, and somewhat of JSON.
func (c *restProtocol) read(resp *http.Response, k *call) ([]byte, error) {
	most := c.l.set.MaxMessage + maxJSON
	large := func() ([]byte, error) {
		return nil, stream.Errorf(stream.TooLarge, "upstream.max_message",
			"allows %d bytes, and the other server's answer has more: raise the setting", c.l.set.MaxMessage)
	}
	if n := resp.ContentLength; n >= 0 {
		if n > most {
			return large()
		}
		if err := k.charge(n); err != nil {
			return nil, err
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			return nil, unreachable(err)
		}
		return body, nil
	}
	var body []byte
	for piece := make([]byte, 64<<10); ; {
		n, err := resp.Body.Read(piece)
		if int64(len(body)+n) > most {
			return large()
		}
		if over := len(body) + n - cap(body); over > 0 {
			grow := max(over, cap(body))
			if err := k.charge(int64(grow)); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, cap(body)+grow), body...)
		}
		body = append(body, piece[:n]...)
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, unreachable(err)
		}
	}
}
