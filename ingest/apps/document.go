package apps

import (
	"encoding/json"
	"errors"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
)

// Row describes a program in a list.
type Row struct {
	Name    string     `json:"name"`
	Style   string     `json:"style"`
	Ready   bool       `json:"ready"`
	Root    bool       `json:"root,omitempty"` // its routes are at the root, too
	Routes  []RouteRow `json:"routes"`
	OpenAPI string     `json:"openapi"` // where its document is
}

// RouteRow describes a route of a program.
type RouteRow struct {
	Method string `json:"method"`
	Path   string `json:"path"` // with the place of the program in front
	Events bool   `json:"events,omitempty"`
}

func (a *Adapter) row(p *Program) Row {
	r := Row{Name: p.Name, Style: p.App.Style, Ready: p.Ready, Root: p.Name == a.opts.Root, Routes: []RouteRow{},
		OpenAPI: "/apps/" + p.Name + "/openapi.json"}
	for i := range p.App.Routes {
		of := &p.App.Routes[i]
		r.Routes = append(r.Routes, RouteRow{of.Method, "/apps/" + p.Name + of.Path, of.Events})
	}
	return r
}

// list answers with the programs.
func (a *Adapter) list(c *fiber.Ctx) error {
	if _, err := a.requests.Begin(); err != nil {
		return err
	}
	defer a.requests.End()
	rows := []Row{}
	for _, p := range all(ingest.ClientOf(httpd.ClientOf(c)).Models()) {
		rows = append(rows, a.row(p))
	}
	return c.JSON(rows)
}

// builtin answers what every program has besides its routes: a description of it.
func (x *Exchange) builtin() (bool, error) {
	if m := x.Ctx.Method(); x.AtRoot || m != "GET" && m != "HEAD" {
		return false, nil
	}
	switch x.Path {
	case "/":
		return true, x.Ctx.JSON(x.a.row(x.Program))
	case "/docs":
		if x.atProgramAddress() {
			return false, nil // the page is at the origin of the console
		}
		return true, httpd.Redirect(x.Ctx, "/docs/?program="+url.QueryEscape(x.Program.Name), fiber.StatusFound)
	case "/openapi.json":
		return true, x.Document()
	}
	return false, nil
}

// Document answers with the OpenAPI document of the program.
func (x *Exchange) Document() error {
	at := "/"
	if !x.AtRoot {
		at = "/apps/" + url.PathEscape(x.Program.Name)
	}
	doc, err := Document(x.Program, httpd.Relative(x.Ctx, at))
	if err != nil {
		return err
	}
	x.Ctx.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return x.Ctx.Send(doc)
}

// Document returns the OpenAPI document of a program: the program's own, or one of its
// routes. server is the address below which the routes are, relative to the document.
func Document(p *Program, server string) ([]byte, error) {
	if len(p.App.OpenAPI) > 0 {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(p.App.OpenAPI, &doc); err != nil {
			return nil, err
		}
		if doc == nil {
			return nil, errors.New("the document of the program is null")
		}
		servers, err := json.Marshal([]map[string]string{{"url": server}})
		if err != nil {
			return nil, err
		}
		doc["servers"] = servers
		return json.Marshal(doc)
	}
	var routes []openapi.Route
	for i := range p.App.Routes {
		r := &p.App.Routes[i]
		one := openapi.Route{Method: r.Method, Path: r.Path, Tag: p.Name, Summary: "Call " + r.Endpoint,
			Answer: openapi.Raw{MediaType: "application/json"}}
		if r.Events {
			one.Answer = openapi.Raw{MediaType: "text/event-stream", Doc: "server-sent events"}
		} else if r.ContentType != "" {
			one.Answer = openapi.Raw{MediaType: r.ContentType}
		}
		routes = append(routes, one)
	}
	return json.Marshal(openapi.Document(openapi.Info{Title: p.Name, Version: p.Model.Version, Server: server}, routes,
		nil))
}
