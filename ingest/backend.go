package ingest

import (
	"context"

	"millrace/stream"
	"millrace/stream/buf"
)

// Interface is a protocol adapter. Serve lets clients in through gate until ctx ends, then ends its
// sessions, with the ending of each frame in flight, and returns. It may be called once.
type Interface interface {
	Name() string
	Serve(ctx context.Context, gate *Gate) error
}

// Backend is the server as one client may use it (Client), and without limits as the server implements it.
// It is safe for concurrent use.
type Backend interface {
	// Open opens a stream to a loaded model (version "" = any). Endings go to
	// sink. Errors: NotFound, Overloaded (no place left in the model's queue),
	// Draining, Unavailable (no worker is left), InvalidArgument (the policy).
	Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error)
	// Models returns the repository: the loaded models and those that can be loaded.
	Models() Repository
	// Memory returns the pool from which frames are leased.
	Memory() *buf.Pool
	// Sequences returns the sequences of requests, which all adapters share.
	Sequences() *Sequences
	// State returns whether the server is ready or draining.
	State() State
}

// Repository lists and changes the loaded models. The changes of one
// model go through one serialised queue.
type Repository interface {
	// Model returns a loaded model's metadata and whether it is ready; version "" = the
	// highest one that is ready. NotFound when no such model or version is loaded.
	Model(name, version string) (*stream.Model, bool, error)
	// Choose returns the version to which the next request goes whose client names none,
	// by the weights of the versions. It is "" for a model with one version.
	Choose(name string) (version string)
	// Versions returns the loaded versions of a model, the lowest first.
	Versions(name string) []string
	// Config returns the configuration of a loaded model with all defaults, in the JSON of the Open Inference Protocol's
	// model configuration extension.
	Config(name, version string) ([]byte, error)
	// Statistics returns what the requests to a loaded model took: name "" = every model,
	// version "" = every version.
	Statistics(name, version string) ([]Statistics, error)
	// Index lists the models, loaded or known: a row for each version.
	Index() []Entry
	// Load loads a model, and returns its endpoint and what has changed.
	Load(ctx context.Context, name string, how Load) (Loaded, error)
	// Unload undoes one load; the last removes the endpoint. Frames in
	// flight complete; waiting ones end with code unloaded.
	Unload(ctx context.Context, endpoint string, how Unload) error
	// Scale sets the number of workers of a loaded model, at most as many as a load request
	// may ask for.
	Scale(ctx context.Context, endpoint string, instances int) error
}

// Load says how a model is loaded. The zero value loads it as it is configured.
type Load struct {
	Params  stream.Params // overlay its configuration
	Version string        // only this version; "" = those that its configuration names
	// Config is a model configuration in JSON, as of the Open Inference Protocol's
	// repository extension, in place of the one in the model's folder; nil = that one.
	Config []byte
	// Files are the contents of the model's folder, by path such as 1/model.onnx, in
	// place of what it has; nil = what it has.
	Files map[string][]byte
	// Reserve is called when the name of the endpoint is known, before anything is changed: there says that it is loaded already. An
	// error ends the load. Otherwise settle is called when the load has ended, whatever has come of it, also when the caller has given up
	// meanwhile: with whether the endpoint is there now. nil = it is not called.
	Reserve func(endpoint string, there bool) (settle func(there bool), err error)
}

// Loaded is the endpoint of a load, and what the load has changed.
type Loaded struct {
	Endpoint string // the name to use the model by
	// Result is loaded (the endpoint is new), reloaded (what serves the endpoint is new: a file or a setting has changed, a worker had
	// failed, or a swap asked for it), scaled (only the number of workers has changed) or unchanged.
	Result string
}

// Unload says how a model is unloaded.
type Unload struct {
	Version    string // only this version; "" = all
	Dependents bool   // unload also the models that it is made of, where no other needs them
}

// Entry is one row of the repository's index.
type Entry struct {
	Name    string
	Version string
	State   string // READY, LOADING, UNAVAILABLE
	Reason  string // why it is not ready, or why its last load failed
	Workers int
	Waiting int // frames that wait
	Streams int
}

// State is the state of the server.
type State struct {
	Ready    bool // every model has a worker that runs
	Failed   bool // a worker has failed more often in a row than limits.restarts allows: the server is not live
	Draining bool
	Version  string // of the program
	Name     string // of the server, in metadata
	// Hosts are the names that a request's Host header may have, as in the setting.
	Hosts []string
	// Origins are the web origins that may use the server, besides its own.
	Origins []string
}
