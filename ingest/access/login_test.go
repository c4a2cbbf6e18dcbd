package access

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

// TestLoginsAtOnce: a login is refused and counted when maxLogins logins are being checked or waiting.
func TestLoginsAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	eva := User{Name: "eva", Password: hashWith(argonParams{memory: 8, passes: 1, threads: 1}, "secret"),
		Grant: Grant{Roles: []string{"infer"}}}
	if err := WriteUsers(file, []User{eva}); err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Users: file, Memory: buf.NewPool(64 << 20), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range maxLogins {
		a.checking <- struct{}{}
	}
	p, err := a.Password(t.Context(), "eva", "secret")
	if p != nil || stream.CodeOf(err) != stream.Overloaded ||
		!strings.Contains(err.Error(), "logins are being checked") || a.Outcomes()["limited"] != 1 {
		t.Errorf("with %d logins that wait: %v, %v, %v", maxLogins, p, err, a.Outcomes())
	}
	<-a.checking
	if p, err := a.Password(t.Context(), "eva", "secret"); err != nil || p == nil || p.Name != "eva" ||
		len(a.checking) != maxLogins-1 {
		t.Errorf("with one login fewer: %v, %v", p, err)
	}
}
