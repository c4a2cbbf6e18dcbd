package service_test

import (
	"net/http"
	"testing"

	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// Probes of a container platform may use any Host; clients must use the names of the setting hosts.
func TestHostsOfContainers(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Hosts:  []string{"*.models.svc"},
		Models: []workers.Config{{Name: "echo", Source: "identity"}}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		path, host string
		want       int
	}{
		{"/v2/health/live", "model.namespace.svc:8000", 200},
		{"/v2/health/ready", "model.namespace.svc:8000", 200},
		{"/health/live", "10.1.2.3:8000", 200},
		{"/health/ready", "10.1.2.3:8000", 200},
		{"/health/startup", "10.1.2.3:8000", 200},
		{"/v2/models/echo/ready", "model.namespace.svc:8000", 200},
		{"/v2/models/echo/versions/1/ready", "model.namespace.svc:8000", 200},
		{"/v2/models/none/ready", "model.namespace.svc:8000", 404},
		{"/v2", "model.namespace.svc:8000", 403},
		{"/v2/models/echo", "model.namespace.svc:8000", 403},
		{"/v2/models/echo/config", "model.namespace.svc:8000", 403},
		{"/v2/models/a/b/c/ready", "model.namespace.svc:8000", 403},
		{"/metrics", "model.namespace.svc:8000", 403},
		{"/v2/models/echo", "echo.models.svc:8000", 200},
	} {
		r, err := http.NewRequest(http.MethodGet, "http://"+s.Addr("http")+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != c.want {
			t.Errorf("%s with Host %s: %d, want %d", c.path, c.host, reply.StatusCode, c.want)
		}
	}
}
