package rest

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
)

// maxParams is the largest body of a repository request, in bytes.
const maxParams = 64 << 10

// index lists the models; with the body {"ready": true}, only the ready models.
func (a *Adapter) index(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	body, err := a.readSmall(c)
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
	return sendJSON(c, fiber.StatusOK, oip.AppendIndex(nil, inference.Index(s.models(c), ask.Ready)))
}

// models lists the names of the ready models with access for the client.
func (a *Adapter) models(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	return c.JSON(names{Models: inference.ReadyNames(s.models(c))})
}

// client returns the client of a request.
func client(c *fiber.Ctx) *ingest.Client { return ingest.ClientOf(httpd.ClientOf(c)) }

// models returns the models with the rights of a request's client.
func (s *service) models(c *fiber.Ctx) ingest.Repository { return client(c).Models() }

// otherRepository refuses a route with the name of a repository.
func otherRepository(c *fiber.Ctx) error {
	return stream.Errorf(stream.InvalidArgument, "repository_name",
		"%.64q is not known: leave it out, there is one repository", pathValue(c, "repository"))
}

// load loads a model with the parameters in the body, and answers with the endpoint and the effect of the load.
func (a *Adapter) load(c *fiber.Ctx) error {
	return a.change(c, 0, func(s *service, name, version string, params stream.Params) (ingest.Loaded, error) {
		return inference.Load(s.ctx, s.models(c), name, version, params)
	})
}

// unload undoes one load of an endpoint.
func (a *Adapter) unload(c *fiber.Ctx) error {
	return a.change(c, maxParams, func(s *service, name, version string, params stream.Params) (ingest.Loaded, error) {
		return ingest.Loaded{Endpoint: name}, inference.Unload(s.ctx, s.models(c), name, version, params)
	})
}

// scale sets the number of workers of an endpoint.
func (a *Adapter) scale(c *fiber.Ctx) error {
	return a.change(c, maxParams, func(s *service, name, _ string, params stream.Params) (ingest.Loaded, error) {
		n, ok := params["instances"].(int64)
		switch {
		case len(params) != 1 || !ok:
			return ingest.Loaded{}, stream.Errorf(stream.InvalidArgument, "instances",
				`is missing, or not all that was sent: want {"instances": N}, a whole number`)
		case n < 1 || n > math.MaxInt32:
			return ingest.Loaded{}, stream.Errorf(stream.InvalidArgument, "instances",
				"%d is not a number of workers: want 1 or more", n)
		}
		return ingest.Loaded{Endpoint: name}, s.models(c).Scale(s.ctx, name, int(n))
	})
}

// change reads a body of at most max bytes (0 = limits.max_body) and calls do. The answer has the endpoint returned
// by do and, if do returns a result, the result of the load.
func (a *Adapter) change(c *fiber.Ctx, max int, do func(s *service, name, version string,
	params stream.Params) (ingest.Loaded, error)) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	// Copy the names for use after the handler. This is not a hot path.
	name, version := strings.Clone(pathValue(c, "model")), strings.Clone(pathValue(c, "version"))
	var held inference.Call
	held.Use(s.gate.Memory(), accept.MemoryOf(c.Context().Conn()))
	defer held.Reset()
	body, err := a.http.ReadBody(c, max, held.ReceiveBody)
	if err != nil {
		return err
	}
	// Reading the JSON, with its files, takes at least as much memory again.
	if held.LeaseTensor(2*len(body)) == nil {
		return stream.Errorf(stream.Overloaded, "",
			"no memory for a request of %d bytes (memory.budget): try later, or raise the setting", len(body))
	}
	params, err := request.LoadParams(body)
	if err != nil {
		return err
	}
	done, err := do(s, name, version, params)
	if err != nil {
		return err
	}
	if worker(c) && !strings.HasSuffix(c.Path(), "/scale") && !takesJSON(c) {
		return sendName(c, done.Endpoint)
	}
	out := oip.AppendString([]byte(`{"name":`), done.Endpoint)
	out = oip.AppendString(append(out, `,"endpoint":`...), done.Endpoint)
	if done.Result != "" {
		out = oip.AppendString(append(out, `,"result":`...), done.Result)
	}
	return sendJSON(c, fiber.StatusOK, append(out, '}'))
}

// readSmall reads the body of a repository request.
func (a *Adapter) readSmall(c *fiber.Ctx) ([]byte, error) {
	return a.http.ReadSmall(c, maxParams)
}
