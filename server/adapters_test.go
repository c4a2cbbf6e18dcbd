package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/internal/openapi"
	"millrace/internal/role"
)

// echoed is an adapter with routes under http. Only TestRegisteredRoutes turns the adapter on.
type echoed struct {
	On    bool `yaml:"on" help:"of the tests"`
	Extra bool `yaml:"extra" help:"of the tests: a route without description"`
}

func (echoed) Name() string { return "echoed" }

func (echoed) Serve(ctx context.Context, _ *ingest.Gate) error {
	<-ctx.Done()
	return nil
}

func init() {
	ingest.RegisterAdapter(ingest.AdapterKind[echoed]{
		Name: "echoed", On: func(o echoed) bool { return o.On },
		Routes: func(echoed) []openapi.Route {
			return []openapi.Route{{Method: "GET", Path: "/echoed", Role: role.Infer, Tag: "tests", Summary: "Echo",
				Answer: openapi.AnyObject}}
		},
		New: func(o echoed, e ingest.AdapterEnv) (ingest.Interface, error) {
			say := func(c *fiber.Ctx) error { return c.SendString("echo") }
			e.HTTP.App.Get("/echoed", say)
			if o.Extra {
				e.HTTP.App.Get("/forgotten", say)
			}
			return o, nil
		},
	})
}

// The routes of a registered adapter are in the OpenAPI document and need their role, without code of the adapter. A
// route without description prevents the start. The routes do not exist when the adapter is off.
func TestRegisteredRoutes(t *testing.T) {
	key := strings.Repeat("k", 32)
	for _, c := range []struct {
		settings *echoed
		key      string
		status   int
	}{
		{nil, key, 404},
		{&echoed{On: true}, "", 401},
		{&echoed{On: true}, key, 200},
	} {
		cfg := Config{HTTP: "127.0.0.1:0", GRPC: Off, APIKey: key}
		if c.settings != nil {
			cfg.Parts = []any{c.settings}
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		<-s.Ready()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL("http")+"/echoed", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.key != "" {
			r.Header.Set("Authorization", "Bearer "+c.key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("%+v with the key %q: %+v, %v, want %d", c.settings, c.key, resp, err, c.status)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		paths, _ := s.OpenAPI()["paths"].(map[string]any)
		if _, listed := paths["/echoed"]; listed != (c.settings != nil) || len(paths) == 0 {
			t.Errorf("%+v: in the document: %v", c.settings, listed)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	_, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Parts: []any{&echoed{On: true, Extra: true}}})
	if err == nil || !strings.Contains(err.Error(), "/forgotten has no role") {
		t.Errorf("a forgotten route: %v", err)
	}
}

// An adapter cannot take the name of another adapter.
func TestRegisteredTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("registered twice")
		}
	}()
	ingest.RegisterAdapter(ingest.AdapterKind[struct {
		X bool `yaml:"x" help:"of the tests"`
	}]{Name: "echoed", New: func(struct {
		X bool `yaml:"x" help:"of the tests"`
	}, ingest.AdapterEnv) (ingest.Interface, error) {
		return nil, nil
	}})
}
