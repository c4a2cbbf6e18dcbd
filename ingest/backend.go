package ingest

import (
	"context"

	"millrace/stream"
	"millrace/stream/buf"
)

// Interface is a protocol adapter. Serve admits clients through gate until ctx ends; then Serve ends the sessions,
// with the ending of each frame in flight, and returns. Serve may be called once.
type Interface interface {
	Name() string
	Serve(ctx context.Context, gate *Gate) error
}

// Backend is the server: with a client's limits (Client), or without limits, as implemented by the server. Backend is
// safe for concurrent use.
type Backend interface {
	// Open opens a stream to a loaded model (version "" = any). Endings go to
	// sink. Errors: NotFound, Overloaded (no place left in the model's queue),
	// Draining, Unavailable (no worker is left), InvalidArgument (the policy).
	Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error)
	// Models returns the repository of loaded and loadable models.
	Models() Repository
	// Memory returns the pool for leases of frames.
	Memory() *buf.Pool
	// Sequences returns the sequences of requests, shared by all adapters.
	Sequences() *Sequences
	// State returns whether the server is ready or draining.
	State() State
}

// FileBackend is a Backend with models that take files (stream.Model.Files).
type FileBackend interface {
	Backend
	// RunFile runs a file, and returns at the end of the run. The end of ctx ends the run. Errors: as of Open;
	// Unsupported, when the model takes no files; the errors of the run.
	RunFile(ctx context.Context, model, version string, f *stream.FileRun) error
}

// Repository lists and changes the loaded models. Changes of a model are serialized by a queue per model.
type Repository interface {
	// Model returns a loaded model's metadata and whether the model is ready; version "" = the highest ready version.
	// NotFound when the model or version is not loaded.
	Model(name, version string) (*stream.Model, bool, error)
	// Choose returns the version for the next request without a version, by the versions' weights; "" for a model
	// with one version.
	Choose(name string) (version string)
	// Versions returns the loaded versions of a model, the lowest first.
	Versions(name string) []string
	// Config returns the configuration of a loaded model with all defaults, in the JSON of the Open Inference
	// Protocol's model configuration extension.
	Config(name, version string) ([]byte, error)
	// Statistics returns the time and rows of the requests to a loaded model: name "" = every model, version "" =
	// every version.
	Statistics(name, version string) ([]Statistics, error)
	// Index lists the models, loaded or known: a row for each version.
	Index() []Entry
	// Load loads a model, and returns the endpoint and the changes made.
	Load(ctx context.Context, name string, how Load) (Loaded, error)
	// Unload undoes a single load; undoing the last load removes the endpoint. Frames in flight complete; waiting
	// frames end with code unloaded.
	Unload(ctx context.Context, endpoint string, how Unload) error
	// Scale sets the number of workers of a loaded model, at most as many as a load request
	// may ask for.
	Scale(ctx context.Context, endpoint string, instances int) error
}

// Load says how to load a model. The zero value loads the configured model.
type Load struct {
	Params  stream.Params // overlay the configuration
	Version string        // only this version; "" = those that its configuration names
	// Config is a model configuration in JSON, as in the Open Inference Protocol's repository extension, in place of
	// the configuration in the model's folder; nil = the folder's configuration.
	Config []byte
	// Files are contents by path, for example 1/model.onnx, in place of the model's folder; nil = the folder's own
	// files.
	Files map[string][]byte
	// Reserve is called when the name of the endpoint is known, before any change: there says that the endpoint is
	// already loaded. An error ends the load. Otherwise settle is called once at the end of the load, even after a
	// failure or when the caller has left; settle's there says whether the endpoint now exists. nil = no reservation.
	Reserve func(endpoint string, there bool) (settle func(there bool), err error)
}

// Loaded is the endpoint of a load, and the changes made by the load.
type Loaded struct {
	Endpoint string // the name to use the model by
	// Result is loaded (new endpoint), reloaded (new workers: a file or setting has changed, a worker had failed, or
	// a swap was requested), scaled (only the number of workers has changed) or unchanged.
	Result string
}

// Unload says how a model is unloaded.
type Unload struct {
	Version    string // only this version; "" = all
	Dependents bool   // also unload the model's component models that no other model needs
}

// Entry is a row of the repository's index.
type Entry struct {
	Name    string
	Version string
	State   string // READY, LOADING, UNAVAILABLE
	Reason  string // why the model is not ready, or why the last load failed
	Workers int
	Waiting int // waiting frames
	Streams int
}

// State is the state of the server.
type State struct {
	Started  bool // the models of the configuration were loaded
	Ready    bool // every model has a running worker
	Failed   bool // a worker has failed more often in a row than limits.restarts allows: the server is not live
	Draining bool
	Version  string // of the program
	Name     string // of the server, in metadata
	// Hosts are the names allowed in a request's Host header, as in the setting.
	Hosts []string
	// Origins are the permitted web origins in addition to the server's own.
	Origins []string
	// Live is when a model accepted a frame above priority low at last; 0 = never.
	Live stream.Instant
}
