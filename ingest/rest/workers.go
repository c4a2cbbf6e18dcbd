package rest

import (
	"encoding/json"
	"mime"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/stream"
)

// This file has the routes of AMD Inference Server, in the form used by its clients: see docs/migrating.md.

func (a *Adapter) workerRoutes(app fiber.Router) {
	app.Post("/v2/workers/:model/load", a.loadWorker)
	app.Post("/v2/workers/:model/unload", a.unloadWorker)
	app.Post("/v2/workers/:model/scale", a.scale)
	app.Post("/v2/hardware", a.hardware)
}

// worker reports whether a request is to a route of workers.
func worker(c *fiber.Ctx) bool { return strings.HasPrefix(c.Path(), "/v2/workers/") }

// takesJSON reports whether a client asks for JSON. Clients of AMD Inference Server say nothing, and take the whole
// body as the name of the endpoint.
func takesJSON(c *fiber.Ctx) bool {
	for one := range strings.SplitSeq(c.Get(fiber.HeaderAccept), ",") {
		media, params, err := mime.ParseMediaType(one)
		if err == nil && params["q"] != "0" && (media == fiber.MIMEApplicationJSON || media == "application/*") {
			return true
		}
	}
	return false
}

// sendName answers with the name of an endpoint as text.
func sendName(c *fiber.Ctx, endpoint string) error {
	c.Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
	c.Set(fiber.HeaderVary, fiber.HeaderAccept)
	return c.SendString(endpoint)
}

// loadWorker is load for a name in any case.
func (a *Adapter) loadWorker(c *fiber.Ctx) error {
	return a.change(c, 0, func(s *service, name, version string, params stream.Params) (ingest.Loaded, error) {
		return inference.LoadWorker(s.ctx, client(c), name, version, params)
	})
}

// unloadWorker is unload for names in upper or lower case. Unloading a removed endpoint succeeds.
func (a *Adapter) unloadWorker(c *fiber.Ctx) error {
	return a.change(c, maxParams, func(s *service, name, version string, params stream.Params) (ingest.Loaded, error) {
		return ingest.Loaded{Endpoint: name}, inference.UnloadWorker(s.ctx, client(c), name, version, params)
	})
}

// hardwareWanted is the body of a request to /v2/hardware.
type hardwareWanted struct {
	Name string `json:"name"`
	Num  *int   `json:"num,omitempty"`
}

// hardware answers whether the server's machine has so many devices of a name: 200, or 404.
func (a *Adapter) hardware(c *fiber.Ctx) error {
	if _, err := a.requests.Begin(); err != nil {
		return err
	}
	defer a.requests.End()
	body, err := a.readSmall(c)
	if err != nil {
		return err
	}
	var want hardwareWanted
	if err := json.Unmarshal(body, &want); err != nil {
		return request.NotJSON(err)
	}
	num := 1
	if want.Num != nil {
		num = *want.Num
	}
	switch {
	case want.Name == "":
		return stream.Errorf(stream.InvalidArgument, "name", "is missing: want cpu or gpu")
	case num < 1:
		return stream.Errorf(stream.InvalidArgument, "num", "is %d: want 1 or more", num)
	}
	if has := inference.Devices(want.Name); has < num {
		return stream.Errorf(stream.NotFound, "name",
			"this machine has %d devices %.64q (cpu and gpu are known), and not %d", has, want.Name, num)
	}
	c.Status(fiber.StatusOK)
	return nil
}
