package apps

import (
	"millrace/internal/openapi"
	"millrace/internal/role"
)

const tagPrograms = "programs"

// Routes describes the routes of the adapter. Every route has its line here: the tests name
// one that has none.
var Routes = []openapi.Route{
	{Method: "GET", Path: "/apps", Role: role.Infer, Tag: tagPrograms,
		Summary: "The programs with routes of their own", Answer: []Row{}},
	{Method: "GET", Path: "/apps/:name", Role: role.Infer, Tag: tagPrograms, Summary: "A program and its routes",
		Answer: Row{}},
	{Method: "POST|PUT|PATCH|DELETE", Path: "/apps/:name", Role: role.Infer, Tag: tagPrograms,
		Summary: "Call the route / of a program"},
	{Method: "GET|POST|PUT|PATCH|DELETE", Path: "/apps/:name/*", Role: role.Infer, Tag: tagPrograms,
		Summary: "Call a route of a program",
		Doc:     "What it takes and answers is in the document of the program, /apps/NAME/openapi.json."},
}
