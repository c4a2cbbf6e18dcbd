package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"millrace/internal/outbound"
	"millrace/internal/sshclient"
)

// peer is an open repository.
type peer interface {
	references(ctx context.Context) (*references, error)
	// pack returns a pack with the commits; depth 0 = with the whole history. shallow are the commits without parents
	// in the pack.
	pack(ctx context.Context, wants []plumbing.Hash, depth int) (pack io.ReadCloser, shallow []plumbing.Hash, err error)
	// lacks reports whether pack cannot give a commit that no reference names.
	lacks() bool
	close() error
}

// session is a repository on a server.
type session struct {
	upload interface {
		AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
		UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
		Close() error
	}
	explain func(error) error // adds what to do to an error
	offered *capability.List
}

func (s *session) references(ctx context.Context) (*references, error) {
	adv, err := s.upload.AdvertisedReferencesContext(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return &references{}, nil
	}
	if err != nil {
		return nil, s.explain(err)
	}
	s.offered = adv.Capabilities
	r := &references{hashes: map[string]plumbing.Hash{}, peeled: adv.Peeled}
	for name, h := range adv.References {
		if strings.HasPrefix(name, heads) || strings.HasPrefix(name, tags) {
			r.hashes[name] = h
		}
	}
	if adv.Head != nil {
		r.headHash = *adv.Head
	}
	for _, ref := range adv.Capabilities.Get(capability.SymRef) {
		if to, ok := strings.CutPrefix(ref, "HEAD:"); ok && strings.HasPrefix(to, heads) {
			r.head = to
		}
	}
	return r, nil
}

func (s *session) lacks() bool {
	return !s.offered.Supports(capability.AllowReachableSHA1InWant) && !s.offered.Supports("allow-any-sha1-in-want")
}

func (s *session) pack(ctx context.Context, wants []plumbing.Hash, depth int) (io.ReadCloser, []plumbing.Hash, error) {
	req := packp.NewUploadPackRequestFromCapabilities(s.offered)
	req.Capabilities.Delete(capability.ThinPack)
	req.Wants = wants
	if depth > 0 && s.offered.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(depth)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, nil, err
		}
	}
	resp, err := s.upload.UploadPack(ctx, req)
	if err != nil {
		return nil, nil, s.explain(err)
	}
	var out io.Reader = resp
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		out = sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		out = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	return struct {
		io.Reader
		io.Closer
	}{out, resp}, resp.Shallows, nil
}

func (s *session) close() error { return s.upload.Close() }

// openHTTP opens a repository over HTTP. The token is sent to a trusted host only.
func openHTTP(s Source, o Options, n *outbound.Rule) (peer, error) {
	if s.url.Scheme == "http" && !o.AllowHTTP && !outbound.IsLoopback(s.url.Hostname()) {
		return nil, errors.New("http:// is not encrypted: write https://, or allow this by --allow-http")
	}
	client := &http.Client{
		Transport: bounded{&http.Transport{Proxy: n.Proxy, DialContext: n.Dial, ForceAttemptHTTP2: true,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.CA},
			TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: 2 * time.Minute, DisableKeepAlives: true}},
	}
	port := 0
	if s.url.Port() != "" {
		port, _ = strconv.Atoi(s.url.Port())
	}
	host := s.url.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	at := &transport.Endpoint{Protocol: s.url.Scheme, Host: host, Port: port, Path: s.url.EscapedPath()}
	var auth transport.AuthMethod
	if o.Token != "" && n.IsNamed(outbound.HostPort(s.url)) {
		user := s.url.User.Username()
		if user == "" {
			user = "git" // servers with tokens take any name
		}
		auth = &githttp.BasicAuth{Username: user, Password: o.Token}
	}
	upload, err := githttp.NewClient(client).NewUploadPackSession(at, auth)
	if err != nil {
		return nil, err
	}
	return &session{upload: upload, explain: func(err error) error { return explainHTTP(err, auth != nil) }}, nil
}

// Limits of what a server answers besides a pack, in bytes.
const (
	maxReferences = 64 << 20
	maxRefusal    = 4 << 10
)

// bounded limits the bodies of refusals and of lists of references, which go-git reads whole.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := int64(0)
	if resp.StatusCode >= http.StatusMultipleChoices {
		limit = maxRefusal
	} else if req.Method == http.MethodGet {
		limit = maxReferences
	}
	if limit > 0 {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, limit), resp.Body}
	}
	return resp, nil
}

// clean is an error with the text of a server, in printable characters.
type clean struct{ error }

func (c clean) Error() string { return sshclient.Printable(c.error.Error()) }

func (c clean) Unwrap() error { return c.error }

// explained is an error with another text.
type explained struct {
	text string
	error
}

func (e explained) Error() string { return e.text }

func (e explained) Unwrap() error { return e.error }

// explainHTTP says what to do about an error of a server.
func explainHTTP(err error, hadToken bool) error {
	token := fmt.Sprintf("set %s to a token or password, and write a user name as https://USER@HOST/PATH if the "+
		"server needs a certain name", EnvToken)
	var dns *net.DNSError
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired) && hadToken:
		return fmt.Errorf("the server refuses the token of %s: is the token right, and valid for this repository? The "+
			"user name is that of https://USER@HOST/PATH", EnvToken)
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return errors.New("the server wants a password, or there is no such repository: " + token)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return errors.New("the server does not allow this user to read the repository: " + token)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return errors.New("the server has no such repository, or hides it from this user: compare the path, or " +
			token)
	case errors.As(err, &dns):
		return explained{fmt.Sprintf("the host %s has no address: compare the name (%s)", dns.Name, dns.Err), dns}
	}
	var unexpected *plumbing.UnexpectedError
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	var at *url.Error
	if errors.As(err, &at) { // the text of url.Error has the address
		err = at.Err
	}
	return clean{err}
}
