package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"millrace/internal/role"
)

// OIDCOptions configure NewOIDC.
type OIDCOptions struct {
	Issuer     string // URL
	Audience   string // required audience of a token
	UserClaim  string // the claim with the name of the user
	RolesClaim string // the claim with the names of roles, parts separated by dots; "" = tokens have none
	// Named returns a new principal of a user; roles are the roles of the token, nil = the options name no claim with
	// roles. New sets Named.
	Named func(key, name string, roles *role.Set) *Principal
	Log   *slog.Logger
}

const (
	// The bounds of requests to the provider: a burst, and a request per interval. A token with an unknown key id
	// causes a request.
	askInterval = 5 * time.Second
	askBurst    = 3
	askTimeout  = 10 * time.Second
	firstAsk    = 2 * time.Second // how long the start of the server waits

	maxTokens   = 4096    // verified tokens remembered
	maxToken    = 8 << 10 // bytes
	maxAskBytes = 1 << 20 // of an answer of the provider
)

// OIDC verifies tokens (JWT) of an OpenID provider. OIDC is safe for concurrent use.
type OIDC struct {
	o      OIDCOptions
	client *http.Client
	ctx    context.Context // of requests to the provider
	cancel context.CancelFunc
	asking sync.WaitGroup

	mu          sync.Mutex
	verifier    *oidc.IDTokenVerifier // nil until the provider's description was read
	lastRequest time.Time
	verified    map[[sha256.Size]byte]token
}

// token is a verified token.
type token struct {
	key, name string
	roles     *role.Set // nil = none by the options
	until     time.Time
}

// NewOIDC returns a verifier. NewOIDC asks the provider at once, and waits two seconds for the answer. Before the
// answer, the verifier refuses all tokens.
func NewOIDC(ctx context.Context, o OIDCOptions) *OIDC {
	d := &OIDC{o: o, verified: map[[sha256.Size]byte]token{}}
	d.client = &http.Client{Timeout: askTimeout, Transport: &askLimit{http.DefaultTransport,
		rate.NewLimiter(rate.Every(askInterval), askBurst)}}
	d.ctx, d.cancel = context.WithCancel(oidc.ClientContext(ctx, d.client))
	d.lastRequest = time.Now()
	answered := make(chan struct{})
	d.asking.Go(func() {
		defer close(answered)
		d.ask()
	})
	timer := time.NewTimer(firstAsk)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
		o.Log.Warn("the provider of tokens has not answered yet: tokens are refused until it does", "setting",
			"auth.oidc.issuer", "waited", firstAsk)
	}
	return d
}

// Close ends requests to the provider.
func (d *OIDC) Close() {
	d.cancel()
	d.asking.Wait()
}

// ask reads the provider's description, with the address of the provider's keys.
func (d *OIDC) ask() {
	provider, err := oidc.NewProvider(d.ctx, d.o.Issuer)
	if err != nil {
		d.o.Log.Error("tokens are refused until the provider answers", "setting", "auth.oidc.issuer", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.verifier = provider.VerifierContext(d.ctx, &oidc.Config{ClientID: d.o.Audience})
}

// IsToken reports whether text has the form of a token.
func IsToken(text string) bool { return len(text) <= maxToken && strings.Count(text, ".") == 2 }

// Authenticate returns the principal of a token; nil = the token is not valid or has expired.
func (d *OIDC) Authenticate(ctx context.Context, text string, now time.Time) (p *Principal, expired bool) {
	id := sha256.Sum256([]byte(text))
	d.mu.Lock()
	if t, ok := d.verified[id]; ok {
		d.mu.Unlock()
		if now.Before(t.until) {
			return d.principalOf(t), false
		}
		return nil, true
	}
	verifier := d.verifier
	if verifier == nil {
		if now.Sub(d.lastRequest) >= askInterval+askTimeout {
			d.lastRequest = now
			d.asking.Go(d.ask)
		}
		d.mu.Unlock()
		return nil, false
	}
	d.mu.Unlock()
	t, err := verifier.Verify(ctx, text)
	if err != nil {
		var old *oidc.TokenExpiredError
		d.o.Log.Debug("a token was refused", "setting", "auth.oidc", "error", err)
		return nil, errors.As(err, &old)
	}
	good, err := d.tokenOf(t)
	if err != nil {
		d.o.Log.Warn("a token of the provider cannot be used", "setting", "auth.oidc", "error", err)
		return nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.verified) >= maxTokens {
		for k, t := range d.verified { // expired tokens, and any further token
			if delete(d.verified, k); len(d.verified) < maxTokens && now.Before(t.until) {
				break
			}
		}
	}
	d.verified[id] = good
	return d.principalOf(good), false
}

// principalOf returns the principal of a token.
func (d *OIDC) principalOf(t token) *Principal {
	p := d.o.Named(t.key, t.name, t.roles)
	p.Expires = t.until
	return p
}

// tokenOf returns the content of a verified token.
func (d *OIDC) tokenOf(t *oidc.IDToken) (token, error) {
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return token{}, err
	}
	name, _ := claims[d.o.UserClaim].(string)
	if err := CheckName(name); err != nil {
		return token{}, fmt.Errorf("its claim %s (auth.oidc.user_claim): %w", d.o.UserClaim, err)
	}
	out := token{key: "oidc:" + t.Subject, name: name, until: t.Expiry}
	if d.o.RolesClaim != "" {
		out.roles = new(role.Set)
		for _, r := range rolesIn(claims, d.o.RolesClaim) {
			if set, err := role.Parse([]string{r}); err == nil {
				*out.roles |= set
			}
		}
	}
	return out, nil
}

// rolesIn returns the names in a claim, either a list or a text with spaces between the names. Dots lead into
// objects.
func rolesIn(claims map[string]any, path string) (names []string) {
	var v any = claims
	if at, ok := claims[path]; ok { // a name with dots, for example https://example.org/roles
		v = at
	} else {
		for part := range strings.SplitSeq(path, ".") {
			object, _ := v.(map[string]any)
			v = object[part]
		}
	}
	switch v := v.(type) {
	case string:
		names = strings.Fields(v)
	case []any:
		for _, one := range v {
			if text, ok := one.(string); ok {
				names = append(names, text)
			}
		}
	}
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, "millrace:")
	}
	return slices.Compact(names)
}

// askLimit bounds the requests to the provider, and the bytes of an answer.
type askLimit struct {
	next    http.RoundTripper
	allowed *rate.Limiter
}

func (l *askLimit) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.allowed.Allow() {
		return nil, errors.New("the provider was asked a moment ago")
	}
	res, err := l.next.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxAskBytes)
	}
	return res, err
}
