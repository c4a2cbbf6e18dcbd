package rest

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
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
	return sendJSON(c, fiber.StatusOK, oip.AppendIndex(nil, inference.Index(s.backend.Models(), ask.Ready)))
}

// load loads a model with the parameters of the body, and returns the name of its
// endpoint.
func (a *Adapter) load(c *fiber.Ctx) error {
	return a.change(c, func(ctx context.Context, s *service, name, version string, params stream.Params) (string, error) {
		return inference.Load(ctx, s.backend.Models(), name, version, params)
	})
}

// unload removes one worker of an endpoint. Parameters are read, but none of them has
// an effect.
func (a *Adapter) unload(c *fiber.Ctx) error {
	return a.change(c, func(ctx context.Context, s *service, name, version string, _ stream.Params) (string, error) {
		return name, inference.Unload(ctx, s.backend.Models(), name, version)
	})
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
