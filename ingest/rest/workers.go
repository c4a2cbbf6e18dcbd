package rest

import (
	"encoding/json"
	"mime"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/stream"
)

// This file has the routes of AMD Inference Server, as its clients call them: see docs/migrating.md.

func (a *Adapter) workerRoutes(app fiber.Router) {
	app.Post("/v2/workers/:model/load", a.loadWorker)
	app.Post("/v2/workers/:model/unload", a.unloadWorker)
	app.Post("/v2/workers/:model/scale", a.scale)
	app.Post("/v2/hardware", a.hardware)
}

// worker reports whether a request is to a route of workers.
func worker(c *fiber.Ctx) bool { return strings.HasPrefix(c.Path(), "/v2/workers/") }

// takesJSON reports whether a client asks for JSON. Clients of AMD Inference Server say nothing, and take the whole body as the
// name of the endpoint.
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

// loadWorker is load for a name in any case: one in capitals that is not known is taken in lower case, as endpoints of AMD
// Inference Server are.
func (a *Adapter) loadWorker(c *fiber.Ctx) error {
	return a.change(c, 0, func(s *service, name, version string, params stream.Params) (string, error) {
		models := ingest.As(s.backend, principal(c), account(c)).Models()
		endpoint, err := inference.Load(s.ctx, models, name, version, params)
		if lower, ok := lowered(c, name, err); ok {
			if there, again := inference.Load(s.ctx, models, lower, version, params); stream.CodeOf(again) != stream.NotFound {
				return there, again
			}
		}
		return endpoint, err
	})
}

// unloadWorker is unload for a name in any case. An endpoint that is not there needs no unload: clients undo each of their loads,
// of which the last one has removed it.
func (a *Adapter) unloadWorker(c *fiber.Ctx) error {
	return a.change(c, maxParams, func(s *service, name, version string, params stream.Params) (string, error) {
		models := ingest.As(s.backend, principal(c), account(c)).Models()
		err := inference.Unload(s.ctx, models, name, version, params)
		if lower, ok := lowered(c, name, err); ok {
			err = inference.Unload(s.ctx, models, lower, version, params)
		}
		if stream.CodeOf(err) == stream.NotFound {
			err = nil
		}
		return name, err
	})
}

// lowered returns a name in lower case if the name itself is not known and the client may use the other one.
func lowered(c *fiber.Ctx, name string, err error) (string, bool) {
	lower := strings.ToLower(name)
	return lower, lower != name && stream.CodeOf(err) == stream.NotFound && principal(c).AllowsModel(lower) == nil
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
	if has := devices(want.Name); has < num {
		return stream.Errorf(stream.NotFound, "name", "this machine has %d devices %.64q (cpu and gpu are known), and not %d", has, want.Name, num)
	}
	c.Status(fiber.StatusOK)
	return nil
}

// devices returns the number of devices of a name that the server may use.
func devices(name string) int {
	switch strings.ToLower(name) {
	case "cpu":
		return runtime.GOMAXPROCS(0)
	case "gpu": // of NVIDIA, each with a file; of others, a file for computing
		nvidia, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well-formed
		if len(nvidia) == 0 {
			nvidia, _ = filepath.Glob("/dev/dri/renderD*")
		}
		n := 0
		for _, f := range nvidia {
			if _, err := os.Stat(f); err == nil {
				n++
			}
		}
		return n
	}
	return 0
}
