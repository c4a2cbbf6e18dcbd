// Package openapi makes an OpenAPI 3.1 document from descriptions of routes and models.
//
// The package owns the form of the document: paths, parameters, and the schemas, derived from the Go types of bodies
// and from the tensors of models. The package must not know the routes of a server: each adapter describes its own
// routes.
package openapi

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/role"
)

// Route describes a route. Path is in Fiber's notation, with optional parts in brackets:
// /v2/models/:model[/versions/:version]/ready describes two routes.
type Route struct {
	Method  string // several are separated by |: GET|POST
	Path    string
	Role    role.Role // the role required of a client
	Probe   bool      // a setting may open the route to everybody
	Tag     string    // the heading in the document
	Summary string
	Doc     string // longer description; "" = the summary suffices
	Query   []Param

	// Body and Answer are values of the types read from the request and written to the reply as JSON; nil = no body.
	// Bodies of other media types are Raw.
	Body, Answer any
	Status       int  // of the reply; 0 = 200
	Infer        bool // the tensors of a model go in and out: Body and Answer are the inference's
	WebSocket    bool // the handshake of a WebSocket
	Audit        bool // requests are written to the audit log; implied by role.Manage
	Public       bool // with role.Manage: the route also exists elsewhere than at management.address
	Limited      bool // the handler respects a client's list of models; implied by a model in the path
}

// Param is an option in the query of a request. Type is string, integer, number or
// boolean.
type Param struct{ Name, Type, Doc string }

// Raw is a body or an answer other than JSON.
type Raw struct{ MediaType, Doc string }

// Many are several forms of a body or an answer: values of types, or Raw.
type Many []any

// Info names the server. Server is the address below which the paths are, relative to the document.
type Info struct{ Title, Version, Description, Server string }

// object is a JSON object. Maps are encoded with sorted keys, so a document of the same
// routes and models is the same text.
type object = map[string]any

// Document returns the document of routes and loaded models, to be encoded as JSON.
func Document(info Info, routes []Route, models []Model) map[string]any {
	d := &document{paths: object{}, schemas: schemas{}}
	d.schemas["Error"] = errorSchema()
	d.schemas["InferRequest"], d.schemas["InferResponse"] = inferRequest(), inferResponse()
	var tags []any
	seen := map[string]bool{}
	for i := range routes {
		if tag := routes[i].Tag; !seen[tag] {
			seen[tag] = true
			tags = append(tags, object{"name": tag})
		}
		d.route(&routes[i])
	}
	for i := range models {
		d.model(&models[i])
		tags = append(tags, object{"name": models[i].tag(), "description": models[i].text()})
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": info.Title, "version": info.Version, "description": info.Description},
		"servers": []any{object{"url": info.Server}},
		"tags":    tags, "paths": d.paths, "components": object{"schemas": d.schemas},
	}
}

type document struct {
	paths   object
	schemas schemas
}

// operation adds an operation of a path.
func (d *document) operation(method, path string, op object) {
	item, ok := d.paths[path].(object)
	if !ok {
		item = object{}
		d.paths[path] = item
	}
	item[strings.ToLower(method)] = op
}

func (d *document) route(r *Route) {
	for _, path := range r.Paths() {
		for method := range strings.SplitSeq(r.Method, "|") {
			d.operation(method, template(path), d.describe(r, method, path))
		}
	}
}

// Paths returns the paths described by the route, in Fiber's notation.
func (r *Route) Paths() []string {
	before, rest, ok := strings.Cut(r.Path, "[")
	if !ok {
		return []string{r.Path}
	}
	part, after, _ := strings.Cut(rest, "]")
	return []string{before + after, before + part + after}
}

// template returns a path of Fiber's in the notation of the document.
func template(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		switch {
		case p == "*":
			parts[i] = "{path}"
		case strings.HasPrefix(p, ":"):
			parts[i] = "{" + p[1:] + "}"
		}
	}
	return strings.Join(parts, "/")
}

// describe returns the operation for a method and path of a route.
func (d *document) describe(r *Route, method, path string) object {
	op := object{"tags": []any{r.Tag}, "summary": r.Summary, "operationId": operationID(method, path),
		"responses": d.responses(r)}
	if r.Doc != "" {
		op["description"] = r.Doc
	}
	if params := parameters(path, r.Query); len(params) > 0 {
		op["parameters"] = params
	}
	body := r.Body
	if r.Infer {
		body = Many{ref("InferRequest"), Raw{"application/octet-stream",
			"binary tensors behind the JSON, or the bytes of one tensor"}, Raw{"image/jpeg", ""}, Raw{"image/png", ""},
			Raw{"image/webp", ""}}
	}
	if body != nil && method != "GET" {
		op["requestBody"] = object{"content": d.content(body), "required": r.Infer}
	}
	return op
}

func (d *document) responses(r *Route) object {
	status, ok := "200", object{"description": "OK"}
	switch {
	case r.WebSocket:
		status, ok = "101", object{"description": "the connection is a WebSocket now"}
	case r.Status != 0 && r.Status != 302:
		status = strconv.Itoa(r.Status)
	case r.Status == 302:
		status, ok = "302", object{"description": "the page is at Location"}
	}
	switch {
	case r.Infer:
		ok["content"] = d.content(Many{ref("InferResponse"),
			Raw{"application/octet-stream", "JSON and then the bytes of binary outputs; the header " +
				"Inference-Header-Content-Length has the length of the JSON"}})
	case r.Answer != nil:
		ok["content"] = d.content(r.Answer)
	}
	return object{status: ok, "default": object{"description": "an error",
		"content": object{"application/json": object{"schema": ref("Error")}}}}
}

// content returns a body or an answer by media type.
func (d *document) content(of any) object {
	switch v := of.(type) {
	case Many:
		out := object{}
		for _, one := range v {
			maps.Copy(out, d.content(one))
		}
		return out
	case Raw:
		media := object{}
		if v.Doc != "" {
			media["schema"] = object{"description": v.Doc}
		}
		return object{v.MediaType: media}
	}
	return object{"application/json": object{"schema": d.schemas.schemaOf(of)}}
}

// operationID names an operation with letters, digits and underscores only.
func operationID(method, path string) string {
	id := strings.ToLower(method) + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.NewReplacer(":", "", "*", "path").Replace(path))
	return strings.TrimRight(id, "_")
}

// parameters returns the parameters of a path and a query.
func parameters(path string, query []Param) (out []any) {
	for part := range strings.SplitSeq(template(path), "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
				"schema": object{"type": "string"}})
		}
	}
	for _, p := range query {
		out = append(out, object{"name": p.Name, "in": "query", "description": p.Doc, "schema": object{"type": p.Type}})
	}
	return out
}

// Compare returns the differences between registered routes, such as "GET /v2/models/:model", and described routes.
// The HEAD of a GET need not be described.
func Compare(registered []string, described []Route) (differences []string) {
	all := map[string]bool{}
	for i := range described {
		for _, path := range described[i].Paths() {
			for method := range strings.SplitSeq(described[i].Method, "|") {
				if all[method+" "+path] {
					differences = append(differences, method+" "+path+" is described twice")
				}
				all[method+" "+path] = true
			}
		}
	}
	has := map[string]bool{}
	for _, r := range registered {
		has[r] = true
		if path, ok := strings.CutPrefix(r, "HEAD "); ok && slices.Contains(registered, "GET "+path) {
			continue
		}
		if !all[r] {
			differences = append(differences, r+" is served and not described: add a line for it")
		}
	}
	for r := range all {
		if !has[r] {
			differences = append(differences, r+" is described and not served: remove its line")
		}
	}
	slices.Sort(differences)
	return slices.Compact(differences)
}
