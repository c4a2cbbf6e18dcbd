package gittest

import (
	"net/http"
	"net/http/cgi"
	"path/filepath"
	"testing"

	"millrace/internal/secret"
)

// HTTP serves the repositories of a folder by the git program's own CGI program, git http-backend. With a password,
// only the user me with the password may read.
func HTTP(t testing.TB, root, password string) http.Handler {
	t.Helper()
	backend := &cgi.Handler{Path: filepath.Join(At(t, t.TempDir()).Git("--exec-path"), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, given, _ := req.BasicAuth(); password != "" && (user != "me" || !secret.Equal(given, password)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	})
}
