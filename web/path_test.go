package web_test

import (
	"fmt"
	"testing"

	"millrace/internal/nginxtest"
)

// atPath starts an nginx that passes requests below a path on to a server, without the path, and returns the address
// of the path.
func atPath(t *testing.T, path, server string) string {
	t.Helper()
	return nginxtest.Start(t, `map $http_upgrade $connection_upgrade { default upgrade; "" ""; }`, fmt.Sprintf(`
		location %s/ {
			proxy_pass http://%s/;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
			proxy_buffering off;
		}`, path, server)) + path
}
