package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/internal/processors"
	"millrace/internal/role"
	"millrace/stream"
)

// quick are parameters for fast hashing in tests.
var quick = argonParams{memory: 64, passes: 1, threads: 1}

func free(int64) (func(), error) { return func() {}, nil }

// TestPasswords: a hash equals the hash of the reference implementation, and matches only its password.
func TestPasswords(t *testing.T) {
	const made = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQxMjM0$WCWoVrX8cKhvU2xr3CJU1MZM1QSyRMrpwJa54SQ6Mkg"
	for _, text := range []string{made, hashWith(quick, "correct horse")} {
		h, salt, sum, err := parseHash(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !h.verify("correct horse", salt, sum) || h.verify("correct horsf", salt, sum) || h.verify("", salt, sum) {
			t.Errorf("%s verifies another password, or not its own", text)
		}
	}
	if a, b := hashWith(quick, "x"), hashWith(quick, "x"); a == b {
		t.Error("two hashes have the same salt")
	}
	for _, text := range []string{
		"", "x", "$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$aaaaaaaaaaaaaaaaaaaaaa",
		strings.Replace(made, "v=19", "v=16", 1), strings.Replace(made, "m=65536", "m=4294967295", 1),
		strings.Replace(made, "m=65536", "m=1", 1), strings.Replace(made, "t=3", "t=0", 1),
		strings.Replace(made, "t=3", "t=4000000", 1), strings.Replace(made, "p=4", "p=0", 1), made[:len(made)-40],
		made + "$",
	} {
		if _, _, _, err := parseHash(text); err == nil {
			t.Errorf("%q is taken for a hash", text)
		}
	}
}

// TestUsers: name and password identify a user, until the entry expires; memory for hashing is charged and released.
func TestUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	now := time.Now()
	if err := WriteUsers(path, []User{
		{Name: "eva", Password: hashWith(quick, "secret 1"),
			Grant: Grant{Roles: []string{"watch"}, Models: []string{"door"}}},
		{Name: "old", Password: hashWith(quick, "secret 2"),
			Grant: Grant{Roles: []string{"watch"}, Expires: now.Add(time.Minute)}},
		{Name: "cam", Grant: Grant{Roles: []string{"infer"}}},
	}); err != nil {
		t.Fatal(err)
	}
	u, err := OpenUsers(path, nil, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	var charged, refunded int64
	charge := func(n int64) (func(), error) {
		charged += n
		return func() { refunded += n }, nil
	}
	for _, c := range []struct {
		name, password string
		at             time.Time
		want           bool
	}{
		{"eva", "secret 1", now, true},
		{"eva", "secret 2", now, false},
		{"eva", "", now, false},
		{"Eva", "secret 1", now, false},
		{"old", "secret 2", now, true},
		{"old", "secret 2", now.Add(time.Minute), false},
		{"cam", "", now, false},
		{"nobody", "", now, false},
		{"", "", now, false},
		{"eva", strings.Repeat("x", MaxPassword+1), now, false},
	} {
		p, err := u.Authenticate(t.Context(), c.name, c.password, c.at, charge)
		if err != nil || (p != nil) != c.want || p != nil && p.Name != c.name {
			t.Errorf("%s %.20s: %v %v", c.name, c.password, p, err)
		}
	}
	if charged == 0 || charged != refunded {
		t.Errorf("%d bytes charged, %d given back", charged, refunded)
	}
	if p, there := u.Current("cam", now); p == nil || !there || p.Allows(role.Infer) != nil {
		t.Errorf("%v", p)
	}
	if p, there := u.Current("old", now.Add(time.Minute)); p != nil || !there {
		t.Errorf("one that has expired: %v %t", p, there)
	}
	full := errors.New("full")
	if _, err := u.Authenticate(t.Context(), "eva", "secret 1", now, func(int64) (func(), error) {
		return nil, full
	}); err != full {
		t.Errorf("without memory: %v", err)
	}
}

// TestHashingIsBounded: at most maxHashing passwords, and no more than the processors allow, are hashed at once. Each
// hash occupies a processor, so that other long computations yield; further logins wait until the end of their
// request.
func TestHashingIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	if err := WriteUsers(path, []User{{Name: "a", Password: hashWith(argonParams{4 << 10, 4, 1}, "x"),
		Grant: Grant{Roles: []string{"infer"}}}}); err != nil {
		t.Fatal(err)
	}
	for count, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: maxHashing, 64: maxHashing} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			hashingIsBounded(t, path, processors.NewTurns(count), want)
		})
	}
}

func hashingIsBounded(t *testing.T, path string, turns *processors.Turns, want int) {
	u, err := OpenUsers(path, turns, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 8 * maxHashing {
		all.Go(func() {
			_, _ = u.Authenticate(t.Context(), "a", "y", time.Now(), func(int64) (func(), error) {
				n := now.Add(1)
				if turns.Occupied() < int(n) {
					t.Errorf("%d passwords are hashed, and %d processors occupied", n, turns.Occupied())
				}
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				return func() { now.Add(-1) }, nil
			})
		})
	}
	all.Wait()
	if n := most.Load(); int(n) > want || n == 0 || turns.Occupied() != 0 {
		t.Errorf("%d passwords were hashed at once, want %d; %d processors are occupied afterwards", n, want,
			turns.Occupied())
	}
	for range want {
		u.turns <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Authenticate(ctx, "a", "b", time.Now(), free); stream.CodeOf(err) != stream.Timeout {
		t.Errorf("%v", err)
	}
}

// TestSessions: only the text identifies a session; a session ends by End or by time, and the sessions of a principal
// are bounded.
func TestSessions(t *testing.T) {
	now := time.Now()
	s := NewSessions(time.Hour)
	eva, other := &Principal{Key: "user:eva"}, &Principal{Key: "user:other"}
	begin := func(p *Principal, at time.Time) string {
		t.Helper()
		text, err := s.Begin(p, at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	of := func(p *Principal) *Principal { // maps p to eva or other by key
		for _, one := range []*Principal{eva, other} {
			if p != nil && p.Key == one.Key && p.Session != "" {
				return one
			}
		}
		return p
	}
	finds := func(text string, at time.Time) *Principal {
		p, _ := s.Find(text, at)
		return of(p)
	}
	text := begin(eva, now)
	if finds(text, now) != eva || finds(text+"x", now) != nil || finds("", now) != nil {
		t.Error("a session is not known by its text, or by another")
	}
	if of(s.End(text)) != eva || finds(text, now) != nil || s.End(text) != nil {
		t.Error("a session that was ended is known")
	}
	text = begin(eva, now)
	if finds(text, now.Add(time.Hour-1)) != eva || finds(text, now.Add(time.Hour)) != nil || finds(text, now) != nil {
		t.Error("a session does not last until its end, or longer")
	}
	short := begin(&Principal{Key: "oidc:eva", Expires: now.Add(time.Minute)}, now)
	if finds(short, now.Add(time.Minute-1)) == nil || finds(short, now.Add(time.Minute)) != nil {
		t.Error("a session does not end with the credentials")
	}
	first, foreign := begin(eva, now), begin(other, now)
	for range maxOfOne {
		text = begin(eva, now)
	}
	if finds(first, now) != nil || finds(text, now) != eva || finds(foreign, now) != other ||
		len(s.byPrincipal["user:eva"]) != maxOfOne {
		t.Error("the oldest session of one principal does not end for the newest")
	}
	for i := 0; len(s.of) < maxSessions; i++ {
		begin(&Principal{Key: "user:" + strconv.Itoa(i)}, now)
	}
	if _, err := s.Begin(other, now); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	begin(other, now.Add(time.Hour))
	if len(s.of) != 1 || len(s.byPrincipal) != 1 {
		t.Errorf("%d sessions of %d are kept that have ended", len(s.of)-1, len(s.byPrincipal))
	}
}

// TestLogins: an address has a burst of attempts, independent of other addresses, and a further attempt per interval.
func TestLogins(t *testing.T) {
	now := time.Now()
	l := NewLogins()
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range loginBurst {
		if l.Allow(one, now) != 0 {
			t.Fatalf("attempt %d", i)
		}
	}
	if l.Allow(one, now) == 0 || l.Allow(other, now) != 0 {
		t.Error("one address has too many attempts, or takes those of another")
	}
	if l.Allow(one, now.Add(loginInterval)) != 0 || l.Allow(one, now.Add(loginInterval)) == 0 {
		t.Error("there is not one more after an interval")
	}
	at := netip.MustParseAddr("10.0.0.0")
	for len(l.of) < maxAddresses {
		at = at.Next()
		l.Allow(at, now)
	}
	for range loginBurst {
		l.Allow(netip.MustParseAddr("192.0.2.9"), now)
	}
	if l.Allow(netip.MustParseAddr("192.0.2.10"), now) == 0 {
		t.Error("addresses without room have no bound")
	}
	if l.Allow(netip.MustParseAddr("192.0.2.11"), now.Add((loginBurst+1)*loginInterval)) != 0 || len(l.of) != 1 {
		t.Errorf("%d addresses are kept that have attempts again", len(l.of))
	}
}

func FuzzHash(f *testing.F) {
	f.Add(hashWith(quick, "x"))
	f.Fuzz(func(t *testing.T, text string) {
		h, salt, sum, err := parseHash(text)
		if err == nil && (h.memory > maxHashMemory || h.passes > maxPasses || len(salt) == 0 || len(sum) == 0) {
			t.Errorf("%+v", h)
		}
	})
}

// TestNewFileIsOfItsFolder: a file created by root belongs to the owner of the folder, so that a server running as
// the same user can read the file.
func TestNewFileIsOfItsFolder(t *testing.T) {
	dir, owner := t.TempDir(), os.Getuid()
	if owner == 0 {
		owner = 65534
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "users.yaml")
	if err := WriteUsers(path, nil); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := int(st.Sys().(*syscall.Stat_t).Uid); got != owner || st.Mode().Perm() != 0o600 {
		t.Errorf("of user %d with mode %o, want %d and 600", got, st.Mode().Perm(), owner)
	}
}
