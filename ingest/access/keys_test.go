package access

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/accept"

	"millrace/internal/role"
)

// TestKeys: only the text of a key identifies the key, until the key expires; the file contains no key.
func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	now := time.Now()
	ever, everText := NewKey("cam.1", Grant{Roles: []string{"infer"}, Models: []string{"door-*"}})
	soon, soonText := NewKey("soon", Grant{Roles: role.All.Names(), Expires: now.Add(time.Hour)})
	if err := WriteKeys(path, []Key{ever, soon}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{everText, soonText} {
		if own := key[strings.LastIndex(key, "_")+1:]; strings.Contains(string(text), own) || len(key) != keyLength {
			t.Errorf("%s is in the file, or is no key", key)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	k, err := OpenKeys(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text    string
		at      time.Time
		name    string
		expired bool
	}{
		{everText, now, "cam.1", false},
		{everText, now.AddDate(100, 0, 0), "cam.1", false},
		{soonText, now, "soon", false},
		{soonText, now.Add(time.Hour), "", true},
		{everText[:len(everText)-1] + "!", now, "", false},
		{everText + "A", now, "", false},
		{soonText[:15] + everText[15:], now, "", false}, // the id of one key, the secret of another
		{"mr_" + ever.ID + "_" + ever.SHA256[:26], now, "", false},
		{"", now, "", false},
	} {
		p, expired := k.Authenticate(c.text, c.at)
		name := ""
		if p != nil {
			name = p.Name
		}
		if name != c.name || expired != c.expired {
			t.Errorf("%.40s: %q %t, want %q %t", c.text, name, expired, c.name, c.expired)
		}
	}
	p, _ := k.Authenticate(everText, now)
	if p.Allows(role.Infer) != nil || p.Allows(role.Manage) == nil || p.Allows(0) == nil || p.Allows(role.Open) != nil {
		t.Errorf("roles %v", p.Roles.Names())
	}
	if p.AllowsModel("door-1") != nil || p.AllowsModel("window") == nil || p.AllowsModel("") == nil {
		t.Errorf("models %v", p.Models)
	}
	if now := k.Current(p, now); now != p {
		t.Errorf("current: %v", now)
	}
}

// TestFaultsAreToldOnce: when a file can no longer be read, each fault, and its end, is reported once; the previous
// content stays valid meanwhile.
func TestFaultsAreToldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	key, text := NewKey("cam", Grant{Roles: []string{"infer"}})
	if err := WriteKeys(path, []Key{key}); err != nil {
		t.Fatal(err)
	}
	var told []string
	k, err := OpenKeys(path, func(err error) { told = append(told, fmt.Sprint(err)) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	looks := func(want ...string) {
		t.Helper()
		told = nil
		for range 5 {
			now = now.Add(checkInterval)
			if p, _ := k.Authenticate(text, now); p == nil {
				t.Error("the key is not valid")
			}
		}
		if len(told) != len(want) {
			t.Fatalf("%q was told, want %q", told, want)
		}
		for i := range want {
			if !strings.Contains(told[i], want[i]) {
				t.Errorf("%q was told, want %q", told, want)
			}
		}
	}
	looks()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	looks("no such file")
	if err := os.WriteFile(path, []byte("keys: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	looks("keys.yaml: ")
	if err := os.Rename(path+".away", path); err != nil { // the file as before
		t.Fatal(err)
	}
	looks("<nil>")
}

func TestParseRefuses(t *testing.T) {
	good := "keys:\n- name: a\n  id: k123456789ab\n  sha256: " + strings.Repeat("a", 64) + "\n  roles: [infer]\n"
	if keys, err := parseKeys([]byte(good), "f"); err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", keys, err)
	}
	if keys, err := parseKeys(nil, "f"); err != nil || len(keys) != 0 {
		t.Errorf("an empty file: %v %v", keys, err)
	}
	if keys, err := parseKeys([]byte("keys: []\n"), "f"); err != nil || len(keys) != 0 {
		t.Errorf("a list of no keys: %v %v", keys, err)
	}
	for _, c := range []struct{ from, to, err string }{
		{"name: a", "name: \"a\\nb\"", "keys[0].name"},
		{"name: a", "nam: a", "nam"},
		{"k123456789ab", "k123456789AB", "keys[0].id"},
		{strings.Repeat("a", 64), "aa", "keys[0].sha256"},
		{good, "keys:\n", "line 1: keys: has no value: write keys: [] for an empty list"},
		{"roles:", "models:\n  roles:", "line 5: models: has no value"}, // a key without models may use all
		{"roles:", "quotas: null\n  roles:", "line 5: quotas: has no value"},
		{"[infer]", "[root]", `keys[0].roles: "root" is not a role: want infer, watch, manage, metrics, work`},
		{"[infer]", "[]", "keys[0].roles: is empty"},
		{"roles:", "models: ['a[']\n  roles:", "keys[0].models: [0]"},
		{"keys:\n", "keys:\n- {name: b, id: k123456789ab, sha256: '" + strings.Repeat("b", 64) +
			"', roles: [watch]}\n", "is there twice"},
	} {
		if _, err := parseKeys([]byte(strings.Replace(good, c.from, c.to, 1)), "f"); err == nil ||
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", c.to, err, c.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("keys:\n- name: a\n  id: k123456789ab\n  sha256: " + strings.Repeat("a", 64) +
		"\n  roles: [infer]\n  expires: 2027-01-01T00:00:00Z\n")
	f.Add("keys: {}")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text), "f")
		for i := range keys {
			if err == nil && keys[i].Check() != nil {
				t.Errorf("%v", keys[i])
			}
		}
	})
}

// TestKeptKey: a connection keeps an accepted key, and only while the file has the key as accepted.
func TestKeptKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	now := time.Now()
	kept, text := NewKey("cam", Grant{Roles: []string{"infer"}, Expires: now.Add(time.Hour)})
	other, otherText := NewKey("door", Grant{Roles: []string{"infer"}})
	if err := WriteKeys(path, []Key{kept, other}); err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Keys: path, Key: "the server's own key", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ln, err := new(accept.Limit).Listen("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check := func(key, want string, at time.Time) {
		t.Helper()
		p, _ := a.IdentifyAt(t.Context(), Credentials{Keys: []string{key}, Conn: conn}, at)
		name := ""
		if p != nil {
			name = p.Name + p.Key[:3]
		}
		if name != want {
			t.Errorf("%s is %q, want %q", key, name, want)
		}
	}
	for range 2 {
		check(text, "camkey", now)
		if k, _ := keptOn(conn); k == nil || k.key != text {
			t.Fatalf("kept %+v", k)
		}
		check(text[:len(text)-1]+"!", "", now)
		check(otherText, "doorkey", now)
		check("the server's own key", "api", now)
	}
	check(text, "", now.Add(2*time.Hour)) // expired
	check(text, "camkey", now)
	if err := WriteKeys(path, []Key{other}); err != nil {
		t.Fatal(err)
	}
	a.Recheck()
	check(text, "", now.Add(time.Second))
	check(otherText, "doorkey", now.Add(time.Second))
	check(text, "", now.Add(time.Second))
}
