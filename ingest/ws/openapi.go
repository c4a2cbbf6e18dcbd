package ws

import (
	"millrace/internal/openapi"
	"millrace/internal/role"
)

const tagStreaming = "streaming"

// streamQuery lists the stream options in the address of a connection.
var streamQuery = []openapi.Param{
	{Name: "codec", Type: "string",
		Doc: "what a frame is: auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16 or pcmf32"},
	{Name: "width", Type: "integer", Doc: "of rgb24 and nv12 frames"},
	{Name: "height", Type: "integer", Doc: "of rgb24 and nv12 frames"},
	{Name: "roi", Type: "string", Doc: "the region of each picture that is analysed: x,y,width,height"},
	{Name: "policy", Type: "string", Doc: "latest or every"},
	{Name: "max_age_ms", Type: "integer", Doc: "drop a frame that would be older than this when it is answered"},
	{Name: "deadline_ms", Type: "integer", Doc: "drop a frame that would be answered later than this"},
	{Name: "max_fps", Type: "number", Doc: "the most frames of a second that are run"},
	{Name: "window", Type: "integer", Doc: "the most frames without an ending"},
	{Name: "outputs", Type: "string", Doc: "json, binary or none"},
	{Name: "traceparent", Type: "string", Doc: "the trace of the frames, for clients that cannot set headers"},
	{Name: "trace", Type: "boolean", Doc: "replies say which trace their frame belongs to"},
}

// Routes describes every route of the adapter.
var Routes = []openapi.Route{
	{
		Method: "GET", Path: "/v2/models/:model[/versions/:version]/stream", Role: role.Infer, Tag: tagStreaming,
		Summary: "Stream frames to a model over a WebSocket", WebSocket: true,
		Doc: "A binary message is a frame, and each frame is answered by one message with its result, or why it has " +
			"none. docs/streaming.md and docs/protocol.md describe the messages.", Query: streamQuery,
	},
	{
		Method: "GET", Path: "/v2/stream", Role: role.Infer, Limited: true, Tag: tagStreaming,
		Summary: "Stream frames to models over a WebSocket", WebSocket: true,
		Doc: "The option model names the model; with the subprotocol millrace.v1 each stream of the connection " +
			"has its own.",
		Query: append([]openapi.Param{{Name: "model", Type: "string", Doc: "the model"}}, streamQuery...),
	},
	{
		Method: "GET", Path: "/models/infer", Role: role.Infer, Limited: true, Tag: tagStreaming,
		Summary: "Run inferences over a WebSocket, each message one call", WebSocket: true,
		Doc: "A message is a request of the Open Inference Protocol that names its model.",
	},
	{Method: "POST", Path: "/v2/tickets", Role: role.Infer, Limited: true, Tag: tagStreaming,
		Summary: "A ticket with which one WebSocket can be opened", Answer: struct {
			Ticket   string `json:"ticket"`
			Protocol string `json:"protocol"`
			Expires  int    `json:"expires_ms"`
		}{}},
}
