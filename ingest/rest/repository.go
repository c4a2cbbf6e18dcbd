package rest

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/coded"
)

// maxParams is the largest body of a repository request, in bytes.
const maxParams = 64 << 10

// index lists the models. With the body {"ready": true} it leaves out those that are
// not ready.
func (a *Adapter) index(c *fiber.Ctx) error {
	s, err := a.begin()
	if err != nil {
		return err
	}
	defer a.end()
	body, err := readSmall(c)
	if err != nil {
		return err
	}
	var ask struct {
		Ready bool `json:"ready"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &ask); err != nil {
			return request.NotJSON(err)
		}
	}
	var rows []oip.IndexRow
	for _, e := range s.backend.Models().Index() {
		if !ask.Ready || e.State == "READY" {
			rows = append(rows, oip.IndexRow{Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason})
		}
	}
	return sendJSON(c, fiber.StatusOK, oip.AppendIndex(nil, rows))
}

// load loads a model with the parameters of the body, and returns the name of its
// endpoint.
func (a *Adapter) load(c *fiber.Ctx) error {
	return a.change(c, func(ctx context.Context, s *service, name, version string, params stream.Params) (string, error) {
		if version != "" && !known(s, name, version) {
			return "", stream.Errorf(stream.NotFound, "version", "model %s has no version %q: see /v2/repository/index", name, version)
		}
		endpoint, err := s.backend.Models().Load(ctx, name, ingest.Load{Params: params})
		return endpoint, coded.Rename(err, inBody(params))
	})
}

// inBody maps the names of load parameters to their names in the body of a request.
func inBody(params stream.Params) map[string]string {
	names := make(map[string]string, len(params))
	for key := range params {
		names[key] = "parameters." + key
	}
	return names
}

// unload removes one worker of an endpoint. Parameters are read, but none of them has
// an effect.
func (a *Adapter) unload(c *fiber.Ctx) error {
	return a.change(c, func(ctx context.Context, s *service, name, version string, _ stream.Params) (string, error) {
		if version != "" {
			if _, _, err := s.backend.Models().Model(name, version); err != nil {
				return "", err
			}
		}
		return name, s.backend.Models().Unload(ctx, name, ingest.Unload{})
	})
}

func known(s *service, name, version string) bool {
	for _, e := range s.backend.Models().Index() {
		if e.Name == name && e.Version == version {
			return true
		}
	}
	return false
}

func (a *Adapter) change(c *fiber.Ctx, do func(ctx context.Context, s *service, name, version string, params stream.Params) (string, error)) error {
	s, err := a.begin()
	if err != nil {
		return err
	}
	defer a.end()
	// The names are copied because they are used after the handler. This is not a hot
	// path.
	name, version := strings.Clone(pathValue(c, "model")), strings.Clone(pathValue(c, "version"))
	body, err := readSmall(c)
	if err != nil {
		return err
	}
	params, err := request.LoadParams(body, strings.HasPrefix(c.Path(), "/v2/workers/"))
	if err != nil {
		return err
	}
	endpoint, err := do(s.ctx, s, name, version, params)
	if err != nil {
		return err
	}
	out := oip.AppendString([]byte(`{"name":`), endpoint)
	out = oip.AppendString(append(out, `,"endpoint":`...), endpoint)
	return sendJSON(c, fiber.StatusOK, append(out, '}'))
}

// readSmall reads the body of a repository request.
func readSmall(c *fiber.Ctx) ([]byte, error) {
	return httpd.ReadBody(c, maxParams, func(n int) ([]byte, error) { return make([]byte, n), nil })
}
