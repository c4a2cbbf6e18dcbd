package modelsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/ctxio"
	"millrace/internal/modelurl"
	"millrace/internal/outbound"
)

// httpOrigin fetches a file with a known digest.
type httpOrigin struct{ c *Cache }

var _ origin = httpOrigin{}

func (httpOrigin) check(modelurl.URL) error { return nil }

// id has no host: the digest names the content wherever the file comes from.
func (httpOrigin) id(u modelurl.URL) string {
	if u.IsArchive() {
		return u.Digest + "/" // no name of a file
	}
	return rawOrigin{}.id(u)
}

// revision returns the digest, which names the content for ever.
func (httpOrigin) revision(_ context.Context, u modelurl.URL) (string, error) { return u.Digest, nil }

func (o httpOrigin) fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error) {
	part := filepath.Join(w.dir, "part")
	if err := o.c.download(ctx, u, part, w); err != nil {
		return "", err
	}
	if !u.IsArchive() {
		return revision, place(part, w.tree, u)
	}
	if err := unpackArchive(ctx, part, u.Base, w); err != nil {
		return "", err
	}
	return revision, os.Remove(part)
}

// rawOrigin is httpOrigin without unpacking archives.
type rawOrigin struct{ httpOrigin }

// id has the name, which the file in the cache has, too.
func (rawOrigin) id(u modelurl.URL) string {
	name, _ := nameOf(u) // Parse has checked the name
	return u.Digest + " " + name
}

func (o rawOrigin) fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error) {
	part := filepath.Join(w.dir, "part")
	if err := o.c.download(ctx, u, part, w); err != nil {
		return "", err
	}
	return revision, place(part, w.tree, u)
}

const maxRedirects = 10

// place makes a received file the only file of the folder tree.
func place(part, tree string, u modelurl.URL) error {
	name, err := nameOf(u)
	if err == nil {
		err = os.Mkdir(tree, 0o700)
	}
	if err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(tree, name))
}

// nameOf returns the name of the file of an address.
func nameOf(u modelurl.URL) (string, error) {
	v, err := url.Parse(u.Base)
	if err != nil {
		return "", err
	}
	return path.Base(v.Path), nil
}

// File fetches one file by its address with the SHA-256 of the file, also an archive, which is not unpacked. The path
// is valid until Close.
func (c *Cache) File(ctx context.Context, address, digest string) (string, error) {
	u, err := modelurl.Parse(address + "#sha256=" + digest)
	if err == nil && u.Scheme != modelurl.HTTP {
		err = errors.New("is not https://")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", modelurl.Mask(address), err)
	}
	if u.Path, err = nameOf(u); err != nil {
		return "", err
	}
	s, err := c.get(ctx, u, rawOrigin{httpOrigin{c}})
	if err != nil {
		return "", err
	}
	defer s.Release()
	local, _, err := s.Place("file")
	return local, err
}

// download receives the file of an address, and compares its digest. A part that an earlier call has received is
// continued.
func (c *Cache) download(ctx context.Context, u modelurl.URL, part string, w *work) error {
	for {
		resumed, err := c.receive(ctx, u, part, w)
		if err != nil {
			return err
		}
		sum, err := sumOf(ctx, part, false)
		if err != nil {
			return err
		}
		if sum == u.Digest {
			return nil
		}
		if err := os.Remove(part); err != nil {
			return err
		}
		if !resumed { // otherwise the part was of another state
			return fmt.Errorf("the file has the SHA-256 %s, and the address has %s: compare the digest with the one "+
				"that the owner of the file publishes", sum, u.Digest)
		}
	}
}

// receive receives the bytes that are missing in part. resumed = part had bytes before.
func (c *Cache) receive(ctx context.Context, u modelurl.URL, part string, w *work) (resumed bool, err error) {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Base, nil)
	if err != nil {
		return false, errors.New("is not a URL") // the error has the query
	}
	req.Header.Set("User-Agent", "millrace")
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	rule := c.rule(outbound.HostPort(req.URL))
	if t, ok := c.token(outbound.HostPort(req.URL), req.URL.Hostname()); ok {
		if t.User != "" {
			req.SetBasicAuth(t.User, t.Secret)
		} else {
			req.Header.Set("Authorization", "Bearer "+t.Secret)
		}
	}
	client := c.httpClient(rule)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return false, cause(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && have > 0:
		return true, nil // complete, or of another state: the digest tells
	case resp.StatusCode == http.StatusPartialContent && have > 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
	case resp.StatusCode == http.StatusOK:
		if err := errors.Join(f.Truncate(0), seek(f)); err != nil {
			return false, err
		}
		have = 0
	default:
		return false, explainStatus(resp, c.o.login())
	}
	total := resp.ContentLength
	if total >= 0 {
		total += have
	}
	if total > w.max {
		return false, tooLarge(w.max)
	}
	return have > 0, copyTo(ctx, f, resp.Body, have, max(total, 0), w)
}

func seek(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// copyTo appends to a file up to the limit of the fetch. have and total are bytes of the whole fetch.
func copyTo(ctx context.Context, to io.Writer, from io.Reader, have, total int64, w *work) error {
	b := make([]byte, 256<<10)
	for from = ctxio.Reader(ctx, from); ; {
		n, err := from.Read(b)
		if have += int64(n); have > w.max {
			return tooLarge(w.max)
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
			w.progress(have, total)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the connection ended before the source was complete: %w", cause(ctx, err))
		}
	}
}

// cause returns the error of a request without the address, which may have a token.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return fmt.Errorf("the server is silent: %w", err)
	}
	return err
}

// httpClient returns a client under a rule of addresses. The client sends requests without encryption to this machine
// only.
func (c *Cache) httpClient(rule *outbound.Rule) *http.Client {
	redirect := func(req *http.Request, via []*http.Request) error {
		if !rule.IsNamed(outbound.HostPort(req.URL)) {
			req.Header.Del("Authorization") // the client sends the header to other ports of a host, too
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("the server redirects more than %d times", maxRedirects)
		}
		return nil
	}
	return &http.Client{Transport: c.transport(rule), CheckRedirect: redirect}
}

func (c *Cache) transport(rule *outbound.Rule) encrypted {
	return encrypted{&http.Transport{Proxy: rule.Proxy, DialContext: rule.Dial, ForceAttemptHTTP2: true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.pool},
		TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: c.o.Idle, IdleConnTimeout: c.o.Idle,
		DisableCompression: true}}
}

// encrypted refuses requests without encryption to other machines, also after a redirect.
type encrypted struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (e encrypted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !outbound.IsLoopback(req.URL.Hostname()) {
		return nil, fmt.Errorf("a request without encryption to %s was refused", req.URL.Host)
	}
	return e.Transport.RoundTrip(req)
}

// login says how a request gets a password, for errors.
func (o *Options) login() string {
	if o.Foreign {
		return "name an address that needs no password"
	}
	return "name the variable with a token of the host in model_sources.tokens"
}

// explainStatus returns the error of a failed request. login says how a request gets a password.
func explainStatus(resp *http.Response, login string) error {
	at := resp.Request.URL.Host
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s answers %d: %s", at, resp.StatusCode, login)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%s has no such file (%d)", at, resp.StatusCode)
	}
	return fmt.Errorf("%s answers %d", at, resp.StatusCode)
}
