package server

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"millrace/config"
	"millrace/internal/textfile"
	"millrace/stream"
)

// Times of the certificates of an authority.
const (
	acmeRetry    = 2 * time.Minute // after the first failure; more than the minute for which autocert keeps a failure
	acmeMaxRetry = time.Hour
	acmeCheck    = time.Hour // between two looks at whether certificates are renewed
	acmeLate     = 6 * time.Hour
)

// authority manages the certificates that a certificate authority issues (ACME). Requests of clients never cause a
// request to the authority: the server requests certificates when the server starts, and autocert renews the
// certificates.
type authority struct {
	names []*managedName
	http  string // the address that serves port 443
	log   *slog.Logger
	end   context.CancelFunc // of the requests to the authority
}

// managedName is a name with a certificate of the authority. Each name has its own manager, so that the server knows
// the error for each name.
type managedName struct {
	name           string
	manager        *autocert.Manager
	hasCertificate atomic.Bool // the manager has a certificate
	transport      *authorityTransport
}

// acmeCache returns the folder of tls.acme.
func acmeCache(c config.ACME) (string, error) {
	if c.Cache != "" {
		return c.Cache, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "millrace", "acme"), nil
}

// ACMECertificate returns the certificate for a name from the cache of tls.acme, and whether the certificate is
// overdue for renewal.
func ACMECertificate(c config.ACME, name string, now time.Time) (leaf *x509.Certificate, isLate bool, err error) {
	dir, err := acmeCache(c)
	if err != nil {
		return nil, false, err
	}
	text, err := autocert.DirCache(dir).Get(context.Background(), name)
	if err != nil {
		return nil, false, err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, false, err
	}
	return pair.Leaf, renewalOverdue(pair.Leaf, now), nil
}

// newAuthority opens the cache. The server serves cached certificates from the start.
func newAuthority(cfg *Config) (*authority, error) {
	c := cfg.TLS.ACME
	bad := func(setting, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, "tls.acme."+setting, format, args...)
	}
	dir, err := acmeCache(c)
	if err != nil {
		return nil, bad("cache", "%w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bad("cache", "%w", err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode()&0o077 != 0 {
		return nil, bad("cache", "other users of this machine can read %s, which has keys: chmod 700", dir)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.DirectoryCA != "" {
		pem, err := textfile.Read(c.DirectoryCA, maxPEM)
		if err != nil {
			return nil, bad("directory_ca", "%w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, bad("directory_ca", "%s has no certificate in PEM", c.DirectoryCA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	cache := autocert.DirCache(dir)
	key, err := accountKey(cache)
	if err != nil {
		return nil, bad("cache", "the key of the account: %w", err)
	}
	a := &authority{http: cfg.HTTP, log: slog.Default()}
	life, end := context.WithCancel(context.Background())
	a.end = end
	for _, name := range c.Domains {
		n := &managedName{name: name, transport: &authorityTransport{life: life, transport: transport}}
		open := func(to http.RoundTripper) {
			n.manager = &autocert.Manager{
				Prompt: autocert.AcceptTOS, Email: c.Email, Cache: cache, HostPolicy: autocert.HostWhitelist(name),
				Client: &acme.Client{Key: key, DirectoryURL: c.Directory,
					HTTPClient: &http.Client{Transport: to, Timeout: time.Minute},
					UserAgent:  "millrace/" + cfg.Version},
			}
		}
		open(offline{}) // to read only the cache
		if _, err := cache.Get(context.Background(), name); err == nil {
			_, err = n.request()
			n.hasCertificate.Store(err == nil)
		}
		open(n.transport) // without a failure, so that the first request, also for a renewal, is sent at once
		a.names = append(a.names, n)
	}
	return a, nil
}

// accountKey returns the account's key from the place where autocert keeps the key, and creates the key if none
// exists. The managers of all names share the account.
func accountKey(cache autocert.Cache) (crypto.Signer, error) {
	const name = "acme_account+key"
	text, err := cache.Get(context.Background(), name)
	if errors.Is(err, autocert.ErrCacheMiss) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		return key, cache.Put(context.Background(), name,
			pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not in PEM", name)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// request returns the certificate, and requests a missing certificate from the authority, for at most five minutes.
func (n *managedName) request() (*tls.Certificate, error) {
	// Always as a client with ECDSA, so that each name has one certificate.
	return n.manager.GetCertificate(&tls.ClientHelloInfo{ServerName: n.name,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
}

// requestUntil calls request until ctx ends. A request that continues after ctx, because autocert cannot interrupt
// its waits, sends nothing more.
func (n *managedName) requestUntil(ctx context.Context) (c *tls.Certificate, err error) {
	done := make(chan struct{})
	var got *tls.Certificate
	var failed error
	go func() {
		defer close(done)
		got, failed = n.request()
	}()
	select {
	case <-done:
		return got, failed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// get is tls.Config.GetCertificate. A client that names no server, such as a probe, gets the first name's
// certificate.
func (a *authority) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	i := 0
	if hello != nil && hello.ServerName != "" {
		name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
		if i = slices.IndexFunc(a.names, func(n *managedName) bool { return n.name == name }); i < 0 {
			return nil, nil // crypto/tls refuses the name
		}
		if slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) {
			return a.names[i].manager.GetCertificate(hello) // for the authority when the authority validates the name
		}
	}
	if n := a.names[i]; !n.hasCertificate.Load() {
		return nil, fmt.Errorf("there is no certificate for %s yet: the log says why", n.name)
	}
	return a.names[i].request()
}

// run requests missing certificates, and logs failed renewals, until ctx ends.
func (a *authority) run(ctx context.Context) {
	defer a.names[0].transport.transport.CloseIdleConnections()
	defer a.end()
	var wg sync.WaitGroup
	for _, n := range a.names {
		wg.Go(func() { a.keep(ctx, n) })
	}
	wg.Wait()
}

func (a *authority) keep(ctx context.Context, n *managedName) {
	name, wait := n.name, acmeRetry
	for {
		before := n.hasCertificate.Load()
		c, err := n.requestUntil(ctx)
		if ctx.Err() != nil {
			return
		}
		next := acmeCheck
		switch {
		case err != nil:
			next, wait = wait, min(2*wait, acmeMaxRetry)
			why := n.transport.last(err)
			a.log.Error("a name has no certificate: clients cannot connect by this name", "setting", "tls.acme",
				"name", name, "error", why, "do", a.advice(name, why), "again in", next)
		case !before:
			n.hasCertificate.Store(true)
			a.log.Info("a name has a certificate", "setting", "tls.acme", "name", name, "until",
				c.Leaf.NotAfter)
		case renewalOverdue(c.Leaf, time.Now()):
			why := n.transport.last(errors.New("the authority was not asked, or did not answer"))
			a.log.Error("the certificate of a name was not renewed yet", "setting", "tls.acme", "name", name,
				"until", c.Leaf.NotAfter, "error", why, "do", a.advice(name, why))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// renewalOverdue reports whether the renewal of a certificate is overdue: autocert renews with a third of the lifetime
// left, or 30 days.
func renewalOverdue(c *x509.Certificate, now time.Time) bool {
	third := min(c.NotAfter.Sub(c.NotBefore)/3, 30*24*time.Hour)
	return now.After(c.NotAfter.Add(-third + min(acmeLate, third/2)))
}

// advice returns how to fix an error.
func (a *authority) advice(name string, err error) string {
	var problem *acme.Error
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return "set tls.acme.directory_ca to the certificate that signs that of the directory"
	}
	if !errors.As(err, &problem) {
		return "check tls.acme.directory, the DNS and the firewall of this machine"
	}
	switch strings.TrimPrefix(problem.ProblemType, "urn:ietf:params:acme:error:") {
	case "caa", "rejectedIdentifier", "unsupportedIdentifier":
		return "the authority does not give certificates for this name: check tls.acme.domains and the CAA records " +
			"of the name"
	case "rateLimited":
		return "wait: the authority bounds how often it is asked; keep the folder tls.acme.cache over restarts"
	case "invalidContact", "unsupportedContact":
		return "correct tls.acme.email"
	case "externalAccountRequired":
		return "use another authority, tls.acme.directory: this one wants accounts of its own"
	}
	if problem.StatusCode < http.StatusBadRequest { // in the state of a challenge
		return fmt.Sprintf("port 443 of %s has to lead from the authority to the address http of this server, %s, "+
			"without a proxy that has a certificate of its own: check the DNS, the firewall and its forwarding", name,
			a.http)
	}
	return "see the terms and the state of the authority"
}

// authorityTransport is the transport to the authority. The transport keeps the authority's error, because autocert
// does not return the error.
type authorityTransport struct {
	life      context.Context // no request is sent after its end
	transport *http.Transport

	mu     sync.Mutex
	reason error
}

// maxProblem bounds the bytes of an error response that are parsed.
const maxProblem = 64 << 10

// RoundTrip implements http.RoundTripper.
func (t *authorityTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(t.life, cancel)
	end := func() {
		stop()
		cancel()
	}
	answer, err := t.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		var op *net.OpError
		if !errors.As(err, &op) || !errors.Is(err, context.Canceled) {
			t.note(fmt.Errorf("%s: %w", r.URL.Redacted(), err))
		}
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err != nil {
		_ = answer.Body.Close()
		end()
		return nil, err
	}
	answer.Body = &replyBody{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body, end}
	if p := problemOf(answer.StatusCode, text); p != nil {
		t.note(p)
	}
	return answer, nil
}

// replyBody is the body of an answer.
type replyBody struct {
	io.Reader
	io.Closer
	end func()
}

// Close implements io.Closer.
func (b *replyBody) Close() error {
	defer b.end()
	return b.Closer.Close()
}

// offline is a transport that sends nothing.
type offline struct{}

// RoundTrip implements http.RoundTripper.
func (offline) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("the server has not started")
}

// problemOf returns the problem in an answer (RFC 8555, sections 6.7 and 7.1.6), or nil.
func problemOf(status int, text []byte) *acme.Error {
	type problem struct{ Type, Detail string }
	var body struct {
		problem
		Status     any // of a problem a number
		Challenges []struct{ Error *problem }
	}
	if json.Unmarshal(text, &body) != nil {
		body.Detail = http.StatusText(status)
	}
	p := body.problem
	if status < http.StatusBadRequest {
		p = problem{}
		for _, c := range body.Challenges {
			if c.Error != nil {
				p = *c.Error
			}
		}
	}
	if p == (problem{}) || strings.HasSuffix(p.Type, ":badNonce") { // autocert retries with a new nonce
		return nil
	}
	return &acme.Error{StatusCode: status, ProblemType: p.Type, Detail: p.Detail}
}

func (t *authorityTransport) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reason = err
}

// last returns the authority's last error, or err if the authority reported none, and clears the last error.
func (t *authorityTransport) last(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reason != nil {
		err, t.reason = t.reason, nil
	}
	return err
}
