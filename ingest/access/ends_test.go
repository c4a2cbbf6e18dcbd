package access

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/role"
)

// TestCredentialsEnd: connections begun with a session end with the logout, connections begun with a token when the
// token expires, and all connections when the roles change.
func TestCredentialsEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	watch, _ := NewKey("watch", Grant{Roles: []string{"watch"}})
	if err := WriteKeys(file, []Key{watch}); err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Key: "secret of the server", Keys: file, Sessions: time.Hour,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		text, err := a.Begin(&Principal{Key: KeyName, Name: "eva", Roles: role.All})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := a.sessions.Find(text, time.Now())
		inSession := a.current(p, time.Now())
		var mu sync.Mutex
		ended := map[string]error{}
		add := func(name string, p *Principal) {
			a.OnEnd(p, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				ended[name] = err
			})
		}
		add("session", inSession)
		add("token", &Principal{Key: KeyName, Name: "token", Roles: role.All,
			Expires: time.Now().Add(10 * time.Second)})
		add("changed", &Principal{Key: "key:" + watch.ID, Name: "watch", Roles: role.All})
		add("stays", &Principal{Key: KeyName, Name: "own", Roles: role.All})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.Watch(ctx); close(done) }()
		want := func(names ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(ended) != len(names) {
				t.Errorf("%v ended, want %v", ended, names)
			}
			for _, name := range names {
				if ended[name] == nil {
					t.Errorf("%s did not end", name)
				}
			}
		}
		time.Sleep(endInterval + 1)
		want("changed")
		a.End(text)
		time.Sleep(endInterval)
		want("changed", "session")
		time.Sleep(7 * time.Second)
		want("changed", "session")
		time.Sleep(2 * time.Second)
		want("changed", "session", "token")
		if a.Pending() != 1 {
			t.Errorf("%d are left", a.Pending())
		}
		stop()
		<-done
	})
}
