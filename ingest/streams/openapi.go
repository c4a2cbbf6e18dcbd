package streams

import (
	"millrace/ingest/clips"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream/rules"
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
	{Method: "GET", Path: "/v2/events", Role: role.Watch, Tag: tagStreams,
		Summary: "The events of the rules of all streams, the newest first", Answer: eventPage{},
		Query: []openapi.Param{
			{Name: "camera", Type: "string", Doc: "the name of a stream"},
			{Name: "type", Type: "string", Doc: rules.TypesText()},
			{Name: "rule", Type: "string", Doc: "the name of a line, zone or condition"},
			{Name: "class", Type: "string", Doc: "the label or number of a class"},
			{Name: "from", Type: "string", Doc: "the earliest time, or a duration before now"},
			{Name: "to", Type: "string", Doc: "the time that the events are before, or a duration before now"},
			{Name: "order", Type: "string", Doc: "oldest, in the order of arrival, or newest (the default) first"},
			{Name: "limit", Type: "integer", Doc: "100, at most 1000"},
			{Name: "after", Type: "string", Doc: "the `next` of the page before"},
		}},
	{Method: "GET", Path: "/v2/streams/:name", Role: role.Watch, Tag: tagStreams,
		Summary: "The state and the counters of a stream", Answer: report{}},
	{Method: "PATCH", Path: "/v2/streams/:name", Role: role.Manage, Tag: tagStreams,
		Summary: "Change settings of a stream while it runs", Body: openapi.AnyObject, Answer: report{}},
	{Method: "POST", Path: "/v2/streams/:name/reset", Role: role.Manage, Tag: tagStreams,
		Summary: "Make a stream of the configuration what it is there, also one that was removed", Answer: report{}},
	{Method: "DELETE", Path: "/v2/streams/:name", Role: role.Manage, Tag: tagStreams,
		Summary: "End a stream and remove it", Doc: "A stream of the configuration returns by `reset`, when the " +
			"server reads its configuration again, or when the server starts again.", Status: 204},
	{Method: "GET", Path: "/v2/streams/:name/counts", Role: role.Watch, Tag: tagStreams,
		Summary: "The counts of a stream's rules, by class, of the present minute, hour and day too",
		Answer:  reportCounts{}},
	{Method: "POST", Path: "/v2/streams/:name/counts/reset", Role: role.Manage, Tag: tagStreams,
		Summary: "Make the counts of a stream's rules 0", Answer: reportCounts{}},
	{Method: "GET", Path: "/v2/streams/:name/heat", Role: role.Watch, Tag: tagStreams,
		Summary: "Where objects were in the last minutes: the time of all objects in each cell of the picture",
		Query: []openapi.Param{{Name: "minutes", Type: "integer",
			Doc: "1 to 60, the present minute included; default 60"}},
		Answer: reportHeat{}},
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
		Doc:     "Motion JPEG, or over WebSocket fragmented MP4 with H.264.",
		Query:   modelQuery, Answer: openapi.Raw{MediaType: "multipart/x-mixed-replace", Doc: "JPEG pictures"},
	},
	{
		Method: "GET", Path: clipsRoot, Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "List the clips of streams, the newest first",
		Query: []openapi.Param{
			{Name: "stream", Type: "string", Doc: "of this stream"},
			{Name: "event", Type: "string", Doc: "with this event, by its id"},
			{Name: "from", Type: "string", Doc: "begun at this time (RFC 3339) or later"},
			{Name: "to", Type: "string", Doc: "begun before this time"},
			{Name: "limit", Type: "integer", Doc: "1 to 1000 clips; default 100"},
			{Name: "before", Type: "string", Doc: "next of the page before"},
		},
		Answer: clipList{},
	},
	{Method: "GET", Path: clipsRoot + "/:id", Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "A clip with its events", Answer: clips.Clip{}},
	{Method: "GET", Path: clipsRoot + "/:id/video", Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "The video of a clip, also while it is being written",
		Doc:     "With the header Range, a part of the video (status 206).",
		Answer:  openapi.Raw{MediaType: "video/mp4", Doc: "the video"}},
	{Method: "GET", Path: clipsRoot + "/:id/objects", Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "The objects in the frames of a clip, a line of JSON for each frame with objects",
		Answer:  openapi.Raw{MediaType: "application/x-ndjson", Doc: "lines"}},
	{Method: "GET", Path: clipsRoot + "/:id/boxes.vtt", Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "The objects in the frames of a clip, as the text track of a player",
		Answer:  openapi.Raw{MediaType: "text/vtt", Doc: "a cue for each object, with the label at the object's box"}},
	{Method: "GET", Path: clipsRoot + "/:id/pictures/:picture", Role: role.Watch, Tag: tagStreams, Limited: true,
		Summary: "The picture of an event of a clip",
		Query:   []openapi.Param{{Name: "boxes", Type: "boolean", Doc: "with its objects drawn; default false"}},
		Answer:  openapi.Raw{MediaType: "image/jpeg", Doc: "the picture"}},
	{Method: "PATCH", Path: clipsRoot + "/:id", Role: role.Manage, Tag: tagStreams, Limited: true,
		Summary: "Keep a clip whatever its age: favourite", Body: openapi.AnyObject, Answer: clips.Clip{}},
	{Method: "DELETE", Path: clipsRoot + "/:id", Role: role.Manage, Tag: tagStreams, Limited: true,
		Summary: "Remove a clip and its pictures", Status: 204},
}
