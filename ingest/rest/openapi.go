package rest

import (
	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/internal/openapi"
	"millrace/internal/role"
)

// flag, named and endpoint are the replies without a Go type.
type flag map[string]bool

type named struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
}

type names struct {
	Models []string `json:"models"`
}

type endpoint struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
}

type loaded struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	Result   string `json:"result"`
}

type parameters struct {
	Parameters map[string]any `json:"parameters,omitempty"`
}

type instances struct {
	Instances int `json:"instances"`
}

type region struct {
	Key      string `json:"key"`
	Offset   uint64 `json:"offset,omitempty"`
	ByteSize uint64 `json:"byte_size"`
}

// inferQuery are the options of an infer request.
var inferQuery = []openapi.Param{
	{Name: "codec", Type: "string", Doc: "what the body is: auto, jpeg, png, webp, rgb24, nv12, opaque or tensors"},
	{Name: "width", Type: "integer", Doc: "of an rgb24 or nv12 picture"},
	{Name: "height", Type: "integer", Doc: "of an rgb24 or nv12 picture"},
	{Name: "roi", Type: "string", Doc: "the region of the picture that is analysed: x,y,width,height"},
	{Name: "datatype", Type: "string", Doc: "of a body that is the bytes of one tensor"},
	{Name: "shape", Type: "string", Doc: "of a body that is the bytes of one tensor: 1,3,-1"},
	{Name: "deadline_ms", Type: "number", Doc: "time in which the request must be answered"},
	{Name: "outputs", Type: "string", Doc: "json, binary or none"},
	{Name: "data", Type: "string", Doc: "an output whose data are the whole reply: an element of BYTES, such as a " +
		"picture file, as it is"},
}

// allQuery is the query option of the routes for shared memory regions.
var allQuery = []openapi.Param{{Name: allOption, Type: "boolean",
	Doc: "true: those of all clients, for which the role manage is needed; otherwise one's own"}}

const (
	tagServer     = "server"
	tagModels     = "models"
	tagRepository = "repository"
	tagMemory     = "shared memory"

	// resultDoc describes the member result of the answer to a load.
	resultDoc = "`result` is `loaded` (the endpoint is new), `reloaded` (what serves the endpoint is new: a file or " +
		"a setting has changed, a worker had failed, or a swap asked for it), `scaled` (only the number of workers " +
		"has changed) or `unchanged`."

	modelPath = "/v2/models/:model[/versions/:version]"
)

var events = openapi.Raw{MediaType: "text/event-stream", Doc: "server-sent events"}

// Routes describes every route of the adapter; a test checks for missing routes.
var Routes = []openapi.Route{
	{Method: "GET", Path: "/v2", Role: role.Infer, Limited: true, Tag: tagServer,
		Summary: "Name, version and extensions of the server", Answer: oip.ServerMetadata{}},
	{Method: "GET", Path: "/v2/health/live", Role: role.Open, Tag: tagServer,
		Summary: "Whether the server runs, and no worker has failed more often in a row than limits.restarts",
		Answer:  flag{}},
	{Method: "GET", Path: "/v2/health/ready", Role: role.Open, Tag: tagServer,
		Summary: "Whether every configured model can answer", Answer: flag{}},
	{Method: "GET", Path: "/health/startup", Role: role.Open, Tag: tagServer,
		Summary: "Whether the server has been ready once", Answer: flag{}},
	{Method: "GET", Path: "/health/live", Role: role.Open, Tag: tagServer,
		Summary: "Whether the server runs, and no worker has failed more often in a row than limits.restarts",
		Answer:  flag{}},
	{Method: "GET", Path: "/health/ready", Role: role.Open, Tag: tagServer,
		Summary: "Whether every configured model can answer", Answer: flag{}},

	{Method: "GET", Path: "/v2/models", Role: role.Infer, Limited: true, Tag: tagModels,
		Summary: "The names of the models that are ready", Answer: names{}},
	{Method: "GET", Path: modelPath, Role: role.Infer, Tag: tagModels, Summary: "Inputs and outputs of a model",
		Answer: oip.ModelMetadata{}},
	{Method: "GET", Path: modelPath + "/ready", Role: role.Infer, Probe: true, Tag: tagModels,
		Summary: "Whether a model can answer", Answer: named{}},
	{Method: "GET", Path: modelPath + "/config", Role: role.Infer, Tag: tagModels,
		Summary: "The configuration of a model, in the form of Triton", Answer: openapi.AnyObject},
	{Method: "GET", Path: "/v2/models/stats", Role: role.Watch, Tag: tagModels,
		Summary: "Statistics of all loaded models, in the form of Triton", Answer: openapi.AnyObject},
	{Method: "GET", Path: modelPath + "/stats", Role: role.Watch, Tag: tagModels,
		Summary: "Statistics of a model, in the form of Triton", Answer: openapi.AnyObject},
	{Method: "POST", Path: modelPath + "/infer", Role: role.Infer, Tag: tagModels, Summary: "Run an inference",
		Infer: true, Query: inferQuery},
	{Method: "POST", Path: modelPath + "/infer_stream", Role: role.Infer, Tag: tagModels,
		Summary: "Run an inference with an event for each answer", Doc: "The body is that of infer. Each answer is " +
			"an event with a reply in JSON; the last event is called end, or error.", Query: inferQuery,
		Body: openapi.AnyObject, Answer: events},
	{Method: "POST", Path: modelPath + "/generate", Role: role.Infer, Tag: tagModels,
		Summary: "Run an inference with inputs and outputs as members of a JSON object", Body: openapi.AnyObject,
		Answer: openapi.AnyObject},
	{Method: "POST", Path: modelPath + "/generate_stream", Role: role.Infer, Tag: tagModels,
		Summary: "Generate, with an event for each answer", Body: openapi.AnyObject, Answer: events},

	{Method: "GET|POST", Path: "/v2/repository/index", Role: role.Infer, Limited: true, Tag: tagRepository,
		Summary: "The models that are loaded or can be loaded", Body: struct {
			Ready bool `json:"ready,omitempty"`
		}{}, Answer: []oip.IndexRow{}},
	{Method: "POST", Path: "/v2/repository/models/:model[/versions/:version]/load", Role: role.Manage,
		Tag: tagRepository, Summary: "Load a model", Doc: "An object without `parameters` has the parameters " +
			"themselves as members: so clients of AMD Inference Server send them. " + resultDoc, Body: parameters{},
		Answer: loaded{}},
	{Method: "POST", Path: "/v2/repository/models/:model[/versions/:version]/unload", Role: role.Manage,
		Tag: tagRepository, Summary: "Undo one load of a model", Body: parameters{}, Answer: endpoint{}},
	{Method: "POST", Path: "/v2/repository/:repository/index", Role: role.Manage, Tag: tagRepository,
		Summary: "Refused: there is one repository, without a name"},
	{Method: "POST", Path: "/v2/repository/:repository/models/:model/load", Role: role.Manage, Tag: tagRepository,
		Summary: "Refused: there is one repository, without a name"},
	{Method: "POST", Path: "/v2/repository/:repository/models/:model/unload", Role: role.Manage, Tag: tagRepository,
		Summary: "Refused: there is one repository, without a name"},
	{Method: "POST", Path: "/v2/workers/:model/scale", Role: role.Manage, Tag: tagRepository,
		Summary: "Set the number of workers of a loaded model", Body: instances{}, Answer: endpoint{}},
	{Method: "POST", Path: "/v2/workers/:model/load", Role: role.Manage, Tag: tagRepository,
		Summary: "Load a model, with the parameters as the body", Doc: "Without `Accept: application/json` the " +
			"answer is the name of the endpoint, as text: so clients of AMD Inference Server read it. " + resultDoc,
		Body: openapi.AnyObject, Answer: loaded{}},
	{Method: "POST", Path: "/v2/workers/:model/unload", Role: role.Manage, Tag: tagRepository,
		Summary: "Undo one load of a model; one that is not loaded is no error",
		Doc:     "As for load, the answer is text without `Accept: application/json`.", Body: openapi.AnyObject,
		Answer: endpoint{}},
	{Method: "POST", Path: "/v2/hardware", Role: role.Infer, Tag: tagServer,
		Summary: "Whether the machine has so many devices: 200, or 404", Doc: "`name` is `cpu` or `gpu`.",
		Body: hardwareWanted{}},

	{Method: "GET", Path: "/v2/systemsharedmemory[/region/:region]/status", Role: role.Infer, Tag: tagMemory,
		Summary: "The regions that the client has registered", Query: allQuery, Answer: []shm.Status{}},
	{Method: "POST", Path: "/v2/systemsharedmemory[/region/:region]/unregister", Role: role.Manage, Tag: tagMemory,
		Summary: "Forget one region of the client, or all", Query: allQuery},
	{Method: "POST", Path: "/v2/systemsharedmemory/region/:region/register", Role: role.Manage, Tag: tagMemory,
		Summary: "Register a region of POSIX shared memory", Body: region{}},
	{Method: "GET", Path: "/v2/cudasharedmemory[/region/:region]/status", Role: role.Infer, Tag: tagMemory,
		Summary: "The regions of a GPU: there are none", Answer: []any{}},
	{Method: "POST", Path: "/v2/cudasharedmemory[/region/:region]/unregister", Role: role.Manage, Tag: tagMemory,
		Summary: "Forget regions of a GPU: there are none"},
	{Method: "POST", Path: "/v2/cudasharedmemory/region/:region/register", Role: role.Manage, Tag: tagMemory,
		Summary: "Refused: this server takes no shared memory of a GPU"},
}
