package streams

import (
	"millrace/internal/openapi"
	"millrace/internal/role"
)

const tagStreams = "server streams"

// modelQuery names one of the models of a stream.
var modelQuery = []openapi.Param{{Name: "model", Type: "string",
	Doc: "of a stream with several models: that of the results"}}

// Routes describes every route of the adapter.
var Routes = []openapi.Route{
	{
		Method: "POST", Path: "/v2/streams", Role: role.Manage, Tag: tagStreams, Summary: "Add a server stream",
		Status: 201,
		Doc:    "The body has the keys of an entry of streams in the configuration.", Body: openapi.AnyObject,
		Answer: report{},
	},
	{Method: "GET", Path: "/v2/streams", Role: role.Watch, Tag: tagStreams, Summary: "List the server streams",
		Answer: struct {
			Streams []report `json:"streams"`
		}{}},
	{Method: "GET", Path: "/v2/streams/:name", Role: role.Watch, Tag: tagStreams,
		Summary: "The state and the counters of a stream", Answer: report{}},
	{Method: "PATCH", Path: "/v2/streams/:name", Role: role.Manage, Tag: tagStreams,
		Summary: "Change settings of a stream while it runs", Body: openapi.AnyObject, Answer: report{}},
	{Method: "POST", Path: "/v2/streams/:name/reset", Role: role.Manage, Tag: tagStreams,
		Summary: "Make a stream of the configuration what it is there, also one that was removed", Answer: report{}},
	{Method: "DELETE", Path: "/v2/streams/:name", Role: role.Manage, Tag: tagStreams,
		Summary: "End a stream and remove it", Doc: "A stream of the configuration returns by `reset`, when the " +
			"server reads its configuration again, or when the server starts again.", Status: 204},
	{
		Method: "GET", Path: "/v2/streams/:name/results", Role: role.Watch, Tag: tagStreams,
		Summary: "The results of a stream as they come",
		Doc: "Server-sent events, lines of JSON with Accept: application/x-ndjson, or a WebSocket, each message a " +
			"result.",
		Query: modelQuery, Answer: openapi.Many{openapi.Raw{MediaType: "text/event-stream"},
			openapi.Raw{MediaType: "application/x-ndjson"}},
	},
	{
		Method: "GET", Path: "/v2/streams/:name/video", Role: role.Watch, Tag: tagStreams,
		Summary: "The pictures of a stream with its results drawn over them",
		Query:   modelQuery, Answer: openapi.Raw{MediaType: "multipart/x-mixed-replace", Doc: "JPEG pictures"},
	},
}
