package access

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/role"
	"millrace/stream"
)

// TestHolder: the holder of a key has the present roles, and none after the end of the key or the user. A server
// without the way to authenticate cannot tell.
func TestHolder(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	keys, users := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "users.yaml")
	watch, _ := NewKey("watch", Grant{Roles: []string{"watch"}})
	late, _ := NewKey("late", Grant{Roles: []string{"infer"}, Expires: now.Add(time.Hour)})
	if err := WriteKeys(keys, []Key{watch, late}); err != nil {
		t.Fatal(err)
	}
	hash := hashWith(argonParams{4 << 10, 4, 1}, "x")
	if err := WriteUsers(users, []User{{Name: "eva", Password: hash, Grant: Grant{Roles: []string{"infer"}}},
		{Name: "certified", Grant: Grant{Roles: []string{"infer"}}}}); err != nil {
		t.Fatal(err)
	}
	all, err := New(Options{Key: "secret of the server", Keys: keys, Users: users, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	own, err := New(Options{Key: "secret of the server"})
	if err != nil {
		t.Fatal(err)
	}
	const unsure = ^role.Role(0) // this server cannot tell
	for _, c := range []struct {
		of   *Access
		key  string
		at   time.Time
		want role.Role // 0 = there is no holder
	}{
		{all, "key:" + watch.ID, now, role.Watch}, {all, "key:" + late.ID, now, role.Infer},
		{all, "key:" + late.ID, now.Add(2 * time.Hour), 0}, {all, "key:other", now, 0},
		{all, "user:eva", now, role.Infer},
		{all, "user:certified", now, 0}, {all, "user:other", now, 0}, {all, KeyName, now, role.Manage},
		{all, "cert:certified", now, unsure}, {all, "oidc:eva", now, unsure}, {all, "module:eva", now, unsure},
		{all, "", now, 0},
		{own, "key:" + watch.ID, now, unsure}, {own, "user:eva", now, unsure}, {own, KeyName, now, role.Manage},
	} {
		p, err := c.of.Holder(c.key, c.at)
		switch {
		case c.want == unsure:
			if p != nil || stream.CodeOf(err) != stream.Unavailable {
				t.Errorf("%s: %+v, %v, want that nobody can tell", c.key, p, err)
			}
		case c.want == 0 && (p != nil || stream.CodeOf(err) != stream.Unauthenticated):
			t.Errorf("%s: %+v, %v, want no holder", c.key, p, err)
		case c.want != 0 && (err != nil || p.Allows(c.want) != nil):
			t.Errorf("%s: %+v, %v, want the role %s", c.key, p, err, c.want)
		}
	}
}

// TestHolderOfDamagedFile: while a file cannot be read again, nobody can tell whether unknown credentials were removed.
func TestHolderOfDamagedFile(t *testing.T) {
	dir := t.TempDir()
	keys, users := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "users.yaml")
	old, _ := NewKey("old", Grant{Roles: []string{"infer"}})
	hash := hashWith(argonParams{4 << 10, 4, 1}, "x")
	write := func() {
		t.Helper()
		eva := User{Name: "eva", Password: hash, Grant: Grant{Roles: []string{"infer"}}}
		if err := errors.Join(WriteKeys(keys, []Key{old}), WriteUsers(users, []User{eva})); err != nil {
			t.Fatal(err)
		}
	}
	write()
	a, err := New(Options{Keys: keys, Users: users, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want stream.Code) {
		t.Helper()
		now := time.Now()
		for _, key := range []string{"key:" + old.ID, "user:eva"} {
			if _, err := a.Holder(key, now); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		for _, key := range []string{"key:other", "user:other"} {
			if _, err := a.Holder(key, now); stream.CodeOf(err) != want {
				t.Errorf("%s: %v, want %s", key, err, want)
			}
		}
	}
	for _, path := range []string{keys, users} {
		if err := os.WriteFile(path, []byte("half: ["), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a.keys.file.Reread() == nil || a.users.file.Reread() == nil {
		t.Fatal("damaged files were read")
	}
	check(stream.Unavailable)
	write()
	if err := errors.Join(a.keys.file.Reread(), a.users.file.Reread()); err != nil {
		t.Fatal(err)
	}
	check(stream.Unauthenticated)
}
