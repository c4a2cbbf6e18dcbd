package server

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"millrace/client"
	"millrace/ingest"
	"millrace/ingest/apps"
	"millrace/ingest/inference"
	"millrace/ingest/rest"
	"millrace/ingest/streams"
	"millrace/ingest/tasks"
	"millrace/ingest/ws"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/tracing/spans"
	"millrace/web"
)

// openapiRoute returns the OpenAPI document of the server and its loaded models.
const openapiRoute = "/openapi.json"

const (
	tagServer    = "server"
	tagTelemetry = "telemetry"
)

// ownRoutes describes every route of this package.
var ownRoutes = []openapi.Route{
	{Method: "GET", Path: openapiRoute, Role: role.Infer, Tag: tagServer, Summary: "This document",
		Answer: openapi.AnyObject},
	{Method: "GET", Path: statusRoute, Role: role.Watch, Tag: tagServer,
		Summary: "The state of all parts of the server", Answer: client.Status{}},
	{Method: "GET", Path: loggingRoute, Role: role.Watch, Tag: tagTelemetry, Summary: "The settings of the log",
		Query: []openapi.Param{{Name: ownOption, Type: "boolean",
			Doc: "true: with level, format, file and debug_rate of this server"}}, Answer: logState{}},
	{Method: "POST", Path: loggingRoute, Role: role.Manage, Tag: tagTelemetry, Summary: "Change the level of the log",
		Body: openapi.AnyObject, Answer: logState{}},
	{Method: "GET", Path: "/v2/trace/setting", Role: role.Watch, Tag: tagTelemetry, Summary: "The settings of traces",
		Answer: openapi.AnyObject},
	{Method: "POST", Path: "/v2/trace/setting", Role: role.Manage, Tag: tagTelemetry,
		Summary: "Change the settings of traces", Body: openapi.AnyObject, Answer: openapi.AnyObject},
	{Method: "GET", Path: "/v2/models/:model/trace/setting", Role: role.Watch, Tag: tagTelemetry,
		Summary: "The settings of traces, which are those of all models", Answer: openapi.AnyObject},
	{Method: "POST", Path: "/v2/models/:model/trace/setting", Role: role.Manage, Tag: tagTelemetry,
		Summary: "Change the settings of traces, which are those of all models", Body: openapi.AnyObject,
		Answer: openapi.AnyObject},
	{
		Method: "GET", Path: tracesRoute, Role: role.Watch, Tag: tagTelemetry,
		Summary: "The kept frames, the newest first",
		Query: []openapi.Param{{Name: "limit", Type: "integer", Doc: "the most frames"},
			{Name: "model", Type: "string", Doc: "of this model"},
			{Name: "reason", Type: "string", Doc: "kept for this reason"},
			{Name: "trace", Type: "string", Doc: "of the trace with this id"}},
		Answer: struct {
			Traces []spans.KeptFrame `json:"traces"`
		}{},
	},
	{Method: "GET", Path: tracesRoute + "/:trace", Role: role.Watch, Tag: tagTelemetry,
		Summary: "One kept frame with its spans", Answer: spans.KeptFrame{}},
}

// routes describes the routes of the HTTP listener.
func (s *Server) routes() []openapi.Route {
	all := slices.Concat(rest.Routes, apps.Routes, ws.Routes, streams.Routes, ownRoutes, web.Routes)
	for _, k := range ingest.Adapters() {
		if k.On(s.cfg.Parts) {
			all = append(all, k.Routes(s.cfg.Parts)...)
		}
	}
	if s.cfg.Data != "" {
		all = append(all, tasks.Routes...)
	}
	if s.access.Required() {
		all = append(all, loginRoutes...)
	}
	if !s.cfg.Metrics.Separate() {
		all = append(all, openapi.Route{Method: "GET", Path: s.cfg.Metrics.Path, Role: s.metrics.role(),
			Tag: tagTelemetry, Summary: "The metrics, for Prometheus", Answer: openapi.Raw{MediaType: "text/plain"}})
	}
	return all
}

func (s *Server) openapiRoutes(app *fiber.App) {
	app.Get(openapiRoute, func(c *fiber.Ctx) error {
		if err := noQuery(c); err != nil {
			return err
		}
		return c.JSON(s.openAPI(s.managesHere(c)))
	})
}

// OpenAPI returns the OpenAPI document, for encoding as JSON, of the routes of the HTTP listener and of
// management.address, and of the loaded models. OpenAPI is safe for concurrent use.
func (s *Server) OpenAPI() map[string]any { return s.openAPI(true) }

// openAPI returns the document; manage includes the routes that need the role manage.
func (s *Server) openAPI(manage bool) map[string]any {
	routes := s.routes()
	if !manage {
		routes = slices.DeleteFunc(routes, func(r openapi.Route) bool { return r.Role == role.Manage && !r.Public })
	}
	info := openapi.Info{
		Title: "Millrace", Version: s.cfg.Version,
		Description: "A streaming inference server. Requests and replies of inference are those of the Open " +
			"Inference Protocol; each loaded model stands with its own tensors.",
		Server: "./", // as openapiRoute is at the root
	}
	return openapi.Document(info, routes, loadedModels(backend{s}.Models()))
}

// loadedModels describes the loaded models, each name once.
func loadedModels(models ingest.Repository) (out []openapi.Model) {
	seen := map[string]bool{}
	for _, e := range models.Index() {
		m, _, err := models.Model(e.Name, "")
		if err != nil || seen[e.Name] { // not loaded
			continue
		}
		seen[e.Name] = true
		out = append(out, inference.Describe(m))
	}
	return out
}
