package access

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"millrace/internal/role"
)

// provider is an OpenID provider for tests: publishes keys, and signs any claims.
type provider struct {
	*httptest.Server
	key    *rsa.PrivateKey
	id     atomic.Value // of the key
	asked  atomic.Int64 // requests for the keys
	closed atomic.Bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	p.id.Store("1")
	var err error
	if p.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.closed.Load() {
			http.Error(w, "closed", http.StatusServiceUnavailable)
			return
		}
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys",
				"authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token",
				"id_token_signing_alg_values_supported": []string{"RS256"}})
		case "/keys":
			p.asked.Add(1)
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(),
				KeyID: p.id.Load().(string), Algorithm: "RS256", Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// token signs claims, with alg and key if given.
func (p *provider) token(t *testing.T, claims map[string]any, alg jose.SignatureAlgorithm, key any) string {
	t.Helper()
	if key == nil {
		key = p.key
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid",
		p.id.Load()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// claimsOf returns the claims of a valid token, with changes; nil removes a claim.
func (p *provider) claimsOf(changes map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{"iss": p.URL, "aud": "millrace", "sub": "u7", "name": "eva", "iat": now.Unix(),
		"exp": now.Add(time.Hour).Unix(), "realm": map[string]any{"roles": []string{"millrace:watch", "other",
			"infer"}}}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func plain(key, name string, roles *role.Set) *Principal {
	p := &Principal{Key: key, Name: name}
	if roles != nil {
		p.Roles = *roles
	}
	return p
}

// TestHungProvider: a provider that accepts connections and does not answer holds the start up for a short time only.
func TestHungProvider(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }()
	var log strings.Builder
	d := NewOIDC(t.Context(), OIDCOptions{Issuer: "http://" + hung.Addr().String(), Audience: "millrace",
		UserClaim: "name", Named: plain, Log: slog.New(slog.NewTextHandler(&log, nil))})
	said := log.String() // nothing else is logged before Close
	if !strings.Contains(said, "has not answered yet") {
		t.Errorf("after the start, the log is %q", said)
	}
	if who, _ := d.Authenticate(t.Context(), "a.b.c", time.Now()); who != nil {
		t.Errorf("%+v", who)
	}
	d.Close()
}

// TestOIDC: a token signed by the provider for the audience is valid until the token expires. Forged tokens are
// refused, and cause only a bounded number of requests to the provider.
func TestOIDC(t *testing.T) {
	p := newProvider(t)
	o := OIDCOptions{Issuer: p.URL, Audience: "millrace", UserClaim: "name", RolesClaim: "realm.roles", Named: plain,
		Log: slog.New(slog.DiscardHandler)}
	d := NewOIDC(t.Context(), o)
	t.Cleanup(d.Close)
	now := time.Now()
	good := p.token(t, p.claimsOf(nil), jose.RS256, nil)
	for range 2 { // the second is remembered
		who, _ := d.Authenticate(t.Context(), good, now)
		if who == nil || who.Key != "oidc:u7" || who.Name != "eva" ||
			strings.Join(who.Roles.Names(), " ") != "infer watch" {
			t.Fatalf("%+v", who)
		}
	}
	if who, expired := d.Authenticate(t.Context(), good, now.Add(2*time.Hour)); who != nil || !expired {
		t.Errorf("one that was remembered is valid after its end: %v %t", who, expired)
	}
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := p.key.N.Bytes()
	for what, text := range map[string]string{
		"expired": p.token(t, p.claimsOf(map[string]any{"exp": now.Add(-time.Minute).Unix()}),
			jose.RS256, nil),
		"without an end": p.token(t, p.claimsOf(map[string]any{"exp": nil}), jose.RS256, nil),
		"not yet valid": p.token(t, p.claimsOf(map[string]any{"nbf": now.Add(time.Hour).Unix()}), jose.RS256,
			nil),
		"for another audience":  p.token(t, p.claimsOf(map[string]any{"aud": "other"}), jose.RS256, nil),
		"of another issuer":     p.token(t, p.claimsOf(map[string]any{"iss": "https://example.org"}), jose.RS256, nil),
		"without a name":        p.token(t, p.claimsOf(map[string]any{"name": nil}), jose.RS256, nil),
		"with a name for a log": p.token(t, p.claimsOf(map[string]any{"name": "eva\nroot"}), jose.RS256, nil),
		"of another key":        p.token(t, p.claimsOf(nil), jose.RS256, foreign),
		"with the public key":   p.token(t, p.claimsOf(nil), jose.HS256, public),
		"without a signature":   "eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".",
		"changed":               good[:len(good)-8] + "AAAAAAAA",
		"of dots":               "..",
	} {
		if who, expired := d.Authenticate(t.Context(), text, now); who != nil ||
			expired != (what == "expired" || what == "without an end") {
			t.Errorf("one %s is valid, or not told as what it is: %v %t", what, who, expired)
		}
	}
	p.id.Store("2")
	for i := range 50 {
		if who, _ := d.Authenticate(t.Context(), p.token(t, p.claimsOf(map[string]any{"n": i}), jose.RS256, foreign),
			now); who != nil {
			t.Error("a forged token is valid")
		}
	}
	if n := p.asked.Load(); n > askBurst {
		t.Errorf("the provider was asked %d times for its keys", n)
	}
	for _, text := range []string{"", "a.b", strings.Repeat("a.", 3), strings.Repeat("a", maxToken) + ".."} {
		if IsToken(text) {
			t.Errorf("%.20q has the form of a token", text)
		}
	}
}

// TestOIDCWithoutProvider: while the provider does not answer, tokens are refused; afterwards tokens are valid
// without a restart.
func TestOIDCWithoutProvider(t *testing.T) {
	p := newProvider(t)
	p.closed.Store(true)
	d := NewOIDC(t.Context(), OIDCOptions{Issuer: p.URL, Audience: "millrace", UserClaim: "sub", Named: plain,
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(d.Close)
	text := p.token(t, p.claimsOf(nil), jose.RS256, nil)
	now := time.Now()
	if who, _ := d.Authenticate(t.Context(), text, now); who != nil {
		t.Error("valid without a provider")
	}
	p.closed.Store(false)
	d.mu.Lock()
	d.lastRequest = now.Add(-time.Hour)
	d.mu.Unlock()
	if who, _ := d.Authenticate(t.Context(), text, now); who != nil {
		t.Error("valid before the provider was asked again")
	}
	d.asking.Wait()
	if who, _ := d.Authenticate(t.Context(), text, now); who == nil {
		t.Error("not valid when the provider answers")
	}
}
