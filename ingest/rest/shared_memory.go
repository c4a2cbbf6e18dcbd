package rest

import (
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/access"
	"millrace/ingest/rest/request"
	"millrace/ingest/shm"
	"millrace/internal/role"
	"millrace/stream"
)

// sharedMemoryRoutes registers the routes of the protocol's extensions for shared memory.
func (a *Adapter) sharedMemoryRoutes(app fiber.Router) {
	const system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
	for _, at := range []string{system, system + "/region/:region"} {
		app.Get(at+"/status", a.onRegions(a.regionStatus))
		app.Post(at+"/unregister", a.onRegions(a.unregisterRegion))
	}
	app.Post(system+"/region/:region/register", a.onRegions(a.registerRegion))

	// GPU memory cannot be shared. Clients remove the regions of an earlier run before using another kind of memory,
	// so unregistering succeeds.
	for _, at := range []string{cuda, cuda + "/region/:region"} {
		app.Get(at+"/status", a.noCUDAStatus)
		app.Post(at+"/unregister", func(c *fiber.Ctx) error { return nil })
	}
	app.Post(cuda+"/region/:region/register", func(*fiber.Ctx) error {
		return stream.Errorf(stream.Unsupported, "",
			"this server takes no CUDA shared memory: register system shared memory")
	})
}

// sharing returns the sender of a request as a client of shared memory.
func sharing(c *fiber.Ctx) shm.Client {
	of := shm.Client{Account: client(c).Core(), Local: shm.Local(c.Context().RemoteAddr())}
	if p := client(c).Principal(); p != nil {
		of.Owner = shm.Owner{Key: p.Key, Entry: p.Entry}
	}
	for _, name := range shm.ProxyHeaders {
		if len(c.Request().Header.Peek(name)) > 0 {
			of.Proxy = name
			break
		}
	}
	return of
}

// onRegions checks that the client may use shared memory. region "" means every region. of is nil for the regions of
// all clients, which need the right to manage the server.
func (a *Adapter) onRegions(do func(c *fiber.Ctx, of *shm.Client, region string) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if a.opts.SharedMemory == nil && c.Method() == fiber.MethodGet {
			return sendJSON(c, fiber.StatusOK, []byte("[]")) // clients ask before registering
		}
		by := sharing(c)
		if err := a.opts.SharedMemory.CheckClient(by); err != nil {
			return err
		}
		of := &by
		switch all := c.Query(allOption); all {
		case "", "false":
		case "true":
			if err := client(c).CheckRights(access.Need{Role: role.Manage, Scope: access.ClientScope}); err != nil {
				return err
			}
			of = nil
		default:
			return stream.Errorf(stream.InvalidArgument, allOption, "%.32q is neither true nor false", all)
		}
		return do(c, of, strings.Clone(pathValue(c, "region")))
	}
}

// allOption is the query option for the regions of all clients.
const allOption = "all"

func (a *Adapter) regionStatus(c *fiber.Ctx, of *shm.Client, region string) (err error) {
	var regions []shm.Status
	if of == nil {
		regions = a.opts.SharedMemory.StatusOfAll(region)
	} else if regions, err = a.opts.SharedMemory.Status(of.Owner, region); err != nil {
		return err
	}
	body, err := json.Marshal(regions)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, body)
}

func (a *Adapter) unregisterRegion(c *fiber.Ctx, of *shm.Client, region string) error {
	switch {
	case of == nil:
		a.opts.SharedMemory.UnregisterOfAll(region)
	case region == "":
		a.opts.SharedMemory.UnregisterAll(of.Owner)
	default:
		a.opts.SharedMemory.Unregister(of.Owner, region)
	}
	return nil
}

func (a *Adapter) registerRegion(c *fiber.Ctx, of *shm.Client, region string) error {
	if of == nil {
		return stream.Errorf(stream.InvalidArgument, allOption,
			"a region is of the client that registers it: leave the option out")
	}
	body, err := a.readSmall(c)
	if err != nil {
		return err
	}
	ask, err := request.ParseRegion(body)
	if err != nil {
		return err
	}
	return a.opts.SharedMemory.Register(*of, region, ask.Key, ask.Offset, ask.ByteSize)
}

func (a *Adapter) noCUDAStatus(c *fiber.Ctx) error {
	if region := pathValue(c, "region"); region != "" {
		return stream.Errorf(stream.NotFound, "", "no CUDA shared memory is registered as %.64q", region)
	}
	return sendJSON(c, fiber.StatusOK, []byte("[]"))
}
