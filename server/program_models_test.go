package server

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/role"
)

// TestProgramOfALimitedKey: a key limited to a program of several stages can call the program's routes, also at the
// root, and not the models of the stages by name.
func TestProgramOfALimitedKey(t *testing.T) {
	for _, root := range []string{"", "svc"} {
		file := filepath.Join(t.TempDir(), "keys.yaml")
		own, ownKey := access.NewKey("own", access.Grant{Roles: role.All.Names(), Models: []string{"svc"}})
		other, otherKey := access.NewKey("other", access.Grant{Roles: role.All.Names(), Models: []string{"svc.a", "b"}})
		if err := access.WriteKeys(file, []access.Key{own, other}); err != nil {
			t.Fatal(err)
		}
		s, _ := startPrograms(t, twoStages, func(c *Config) {
			c.Auth, c.Programs = config.Auth{Keys: file}, config.Programs{Root: root}
		})
		at := "/apps/svc"
		if root != "" {
			at = ""
		}
		ask := func(key, path string) string {
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL("http")+path, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("api_key", key)
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			return r.Status + " " + string(text)
		}
		for path, want := range map[string]string{at + "/a": "200 OK one", at + "/b": "200 OK two",
			"/v2/models/svc.a/infer": "403 "} {
			if got := ask(ownKey, path); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		if got := ask(otherKey, at+"/a"); !strings.HasPrefix(got, "403 ") {
			t.Errorf("%s/a with a key for other models: %s", at, got)
		}
	}
}
