package rest

import (
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/rest/request"
	"millrace/ingest/shm"
	"millrace/stream"
)

// sharedMemoryRoutes are those of the protocol's extensions for shared memory.
func (a *Adapter) sharedMemoryRoutes(app fiber.Router) {
	const system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
	for _, at := range []string{system, system + "/region/:region"} {
		app.Get(at+"/status", a.onRegions(a.regionStatus))
		app.Post(at+"/unregister", a.onRegions(a.unregisterRegion))
	}
	app.Post(system+"/region/:region/register", a.onRegions(a.registerRegion))

	// There is none of a GPU. Clients remove what is left of an earlier run before they
	// use another kind of memory, so that this succeeds.
	for _, at := range []string{cuda, cuda + "/region/:region"} {
		app.Get(at+"/status", a.noCUDAStatus)
		app.Post(at+"/unregister", func(c *fiber.Ctx) error { return nil })
	}
	app.Post(cuda+"/region/:region/register", func(*fiber.Ctx) error {
		return stream.Errorf(stream.Unsupported, "", "this server takes no CUDA shared memory: register system shared memory")
	})
}

// local reports whether the client is on the same machine.
func local(c *fiber.Ctx) bool { return shm.Local(c.Context().RemoteAddr()) }

// onRegions checks that the client may use shared memory. region "" is every region.
func (a *Adapter) onRegions(do func(c *fiber.Ctx, region string) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if a.opts.SharedMemory == nil && c.Method() == fiber.MethodGet {
			return sendJSON(c, fiber.StatusOK, []byte("[]")) // clients ask before they register
		}
		if err := a.opts.SharedMemory.CheckClient(local(c)); err != nil {
			return err
		}
		return do(c, strings.Clone(pathValue(c, "region")))
	}
}

func (a *Adapter) regionStatus(c *fiber.Ctx, region string) error {
	regions, err := a.opts.SharedMemory.Status(region)
	if err != nil {
		return err
	}
	body, err := json.Marshal(regions)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, body)
}

func (a *Adapter) unregisterRegion(c *fiber.Ctx, region string) error {
	if region == "" {
		a.opts.SharedMemory.UnregisterAll()
	} else {
		a.opts.SharedMemory.Unregister(region)
	}
	return nil
}

func (a *Adapter) registerRegion(c *fiber.Ctx, region string) error {
	body, err := readSmall(c)
	if err != nil {
		return err
	}
	ask, err := request.ParseRegion(body)
	if err != nil {
		return err
	}
	if err := a.opts.SharedMemory.Register(region, ask.Key, ask.Offset, ask.ByteSize); err != nil {
		return err
	}
	return nil
}

func (a *Adapter) noCUDAStatus(c *fiber.Ctx) error {
	if region := pathValue(c, "region"); region != "" {
		return stream.Errorf(stream.NotFound, "", "no CUDA shared memory is registered as %.64q", region)
	}
	return sendJSON(c, fiber.StatusOK, []byte("[]"))
}
