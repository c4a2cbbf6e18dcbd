package web

import (
	"millrace/internal/openapi"
	"millrace/internal/role"
)

const tagPages = "pages"

// Routes describes the routes of the package. Every route has a line here.
var Routes = []openapi.Route{
	{Method: "GET", Path: "/", Role: role.Open, Tag: tagPages, Summary: "Leads to the console", Status: 302},
	{Method: "GET", Path: "/console", Role: role.Open, Tag: tagPages, Summary: "Leads to the console", Status: 302},
	{Method: "GET", Path: "/console/*", Role: role.Open, Tag: tagPages, Summary: "The console and its files",
		Answer: openapi.Raw{MediaType: "text/html"}},
	{Method: "GET", Path: "/docs", Role: role.Open, Tag: tagPages, Summary: "Leads to the page of this document",
		Status: 302},
	{Method: "GET", Path: "/docs/*", Role: role.Open, Tag: tagPages, Summary: "This document as a page, and its files",
		Answer: openapi.Raw{MediaType: "text/html"}},
}
