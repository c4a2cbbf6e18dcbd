package inferenceserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/compat/inferenceserver"
	"millrace/ingest/access"
	"millrace/server"
)

// TestWhoPosts: models are posted with the role manage at management.address, and elsewhere with the setting only.
func TestWhoPosts(t *testing.T) {
	file, key := keys(t, map[string]access.Grant{"infer": {Roles: []string{"infer"}},
		"boss": {Roles: []string{"infer", "manage"}}, "limited": {Roles: []string{"infer", "manage"},
			Models: []string{"n"}}})
	const query = "?container_tag=localhost/model:1&human_readable_id=m"
	// Behind the checks, the post ends with an error: the server has no container engine.
	const reached, unset = http.StatusBadRequest, "containers.host"
	for name, set := range map[string]struct {
		public, management bool
		at                 int // status of a post at the public address
	}{
		"neither": {false, false, 405}, "public": {true, false, reached}, "management": {false, true, 405},
		"both": {true, true, reached},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(c *server.Config, o *inferenceserver.Options) {
				c.Auth.Keys, o.PublicPostModel = file, set.public
				if set.management {
					c.Management.Address = "127.0.0.1:0"
				}
			})
			post := func(base, path, key string, status int) {
				t.Helper()
				q, err := http.NewRequest("POST", base+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				q.Header.Set("Authorization", "Bearer "+key)
				a, err := http.DefaultClient.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				defer a.Body.Close()
				b := make([]byte, 1000)
				n, _ := a.Body.Read(b)
				if text := string(b[:n]); a.StatusCode != status ||
					status == reached && !strings.Contains(text, unset) {
					t.Errorf("%s%s: %d %s, want %d", base, path, a.StatusCode, text, status)
				}
			}
			public, _ := url.Parse(r.URL("http"))
			for _, path := range []string{"/api/models/" + query, "/api/tasks/" + query} {
				post(public.String(), path, key["boss"], set.at)
				want := http.StatusForbidden
				if set.management && !set.public && strings.HasPrefix(path, "/api/models/") {
					want = http.StatusMethodNotAllowed // the route does not exist at this address
				}
				post(public.String(), path, key["infer"], want)
				post(public.String(), path, key["limited"], want)
				if set.management {
					post(r.URL("management"), path, key["boss"], reached)
					post(r.URL("management"), path, key["infer"], http.StatusForbidden)
				}
			}
		})
	}
}
