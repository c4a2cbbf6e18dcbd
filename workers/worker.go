package workers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/internal/confine"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
)

// Worker is one instance of a model. A group makes each instance with the New function of its kind and calls the
// methods, one at a time:
//
//	Init -> Allocate -> Acquire -> Run ... Run -> Release -> Deallocate -> Destroy
//
// When a step fails, only the earlier steps are undone: when Acquire fails, Deallocate and Destroy follow. Embed Base
// to implement only Init and Run.
type Worker interface {
	// Init reads the parameters and opens everything that all instances could share. Init returns the model's
	// metadata; the group sets name, version and batching.
	Init(ctx context.Context, env *Env) (*stream.Model, error)
	// Allocate allocates the memory that every Run uses.
	Allocate(ctx context.Context) error
	// Acquire takes and warms up the hardware, or starts the process.
	Acquire(ctx context.Context) error
	// Run computes one batch. Each request is ended by the batch's Finish or Fail, or from the batch's Outputs when
	// Run returns nil; an error of Run ends the remaining requests. The stages after the run see the outputs of
	// Finish and of the batch. A worker calls Finish of a request itself only while b.After is nil: stages do not see
	// such an ending. With ErrBroken in the error's chain the instance is replaced. ctx ends when the group abandons
	// the run. With Kind.Ahead, Run may be called during another Run.
	Run(ctx context.Context, b *batching.Batch) error
	Release()
	Deallocate()
	Destroy()
}

// Interrupter is a worker whose run can be ended early. At limits.run the group calls Interrupt, and the run returns
// with an error soon after: the requests of the batch fail, and the worker goes on. Only when the run does not return
// within interruptGrace is the worker replaced. Another goroutine calls Interrupt, from just before the call of Run
// until just after its return. Afterwards the group calls ClearInterrupt: Interrupt must not end the next run.
type Interrupter interface {
	Interrupt()
	ClearInterrupt()
}

// ErrBroken means that an instance cannot run any more, because its process has ended or its device has failed. The
// group then replaces the instance.
var ErrBroken = errors.New("the worker is broken")

// ErrNotStarted means that Run has not begun the batch, because the worker is broken: the batch runs again after the
// replacement of the worker, so Run must not have ended any request of the batch. ErrNotStarted implies ErrBroken.
var ErrNotStarted = errors.New("the worker broke before it began this batch")

// Env is the environment that a group gives a worker.
type Env struct {
	Name     string // the endpoint's name
	Instance int    // number of this instance in the endpoint: 0, 1 ...; a replacement keeps the number
	Source   string // the source to load, for kinds with sources
	Digest   string // of the model's files, to tell one state of them from another; "" = it has none
	Log      *slog.Logger

	// Settings is the struct returned by the kind's Settings, with the parameters of the configuration and of the
	// load request, and defaults for all other fields.
	Settings any

	// These override the metadata of Init, for workers that need the values before the group overrides the metadata.
	MaxBatch int               // rows (batching.max_size); 0 = the worker's own choice
	Image    *stream.ImageSpec // nil = the worker's own
	Window   Window            // zero = none
	Declared Declared          // the required inputs and outputs

	// For workers whose requests run through other models, and for workers that bound their runs.
	Models Models                // finds loaded models
	Memory *buf.Pool             // of frames
	Pixels codec.Limits          // of pictures
	Limit  time.Duration         // limits.run: of a request taken from its batch, and of a batch of a kind with Ahead
	Step   func(*stream.Step)    // counts the work of one step of a graph for a request
	Done   func(*stream.Request) // counts a request taken from the batch, after the request's ending

	// Shared, Processes and Programs are for workers in child processes or containers. Shared returns a value shared by
	// all instances of the group; the first call makes the value.
	Shared    func(make func() any) any
	Processes *Processes        // counts the processes and containers
	Programs  *confine.Programs // confines the processes; nil = no confinement
	// Containers is ManagerOptions.Containers.
	Containers any
	// Requested are the parameters of a load request; Settings contains Requested, too.
	Requested stream.Params
	// Public returns an error for an address that a load request must not name; nil = every address is allowed.
	Public func(netip.Addr) error
	// Unready reports why the model cannot serve now although its workers run; nil = the model can serve. Any
	// goroutine may call Unready.
	Unready func(reason error)
	// Replace asks for another worker in place of this worker, outside of any Run: because of err, or as planned when
	// err is nil. Any goroutine may call Replace.
	Replace func(err error)
	// StopBy returns the deadline for the worker's stop: later the worker is considered hung, or the server ends. The
	// deadline may become earlier. Any goroutine may call StopBy.
	StopBy func() stream.Instant
}

// Base implements all methods of Worker except Init and Run.
type Base struct{}

// Allocate does nothing.
func (Base) Allocate(context.Context) error { return nil }

// Acquire does nothing.
func (Base) Acquire(context.Context) error { return nil }

// Release does nothing.
func (Base) Release() {}

// Deallocate does nothing.
func (Base) Deallocate() {}

// Destroy does nothing.
func (Base) Destroy() {}

// Kind is a kind of worker, registered under its name.
type Kind struct {
	Name string
	Doc  string // one line, for listings
	// Platform is the platform in the metadata of the kind's models; "" = the name.
	Platform string
	New      func() Worker
	// Memory is the memory of batches unless the configuration sets batching's memory; "" = heap.
	Memory batching.Backend
	// Ahead means that an instance gets the next batch, if full, during a run: a second goroutine then calls Run.
	// Such a kind bounds the time of each batch itself, by Env.Limit, because only the kind knows the begin of a
	// batch (batching.Batch.Begin) and the time spent waiting for others (batching.Batch.Extend).
	Ahead bool
	// Outbound means that models of the kind connect to machines named by settings. The settings then come from the
	// server's configuration, or one by one as parameters of a load request, but not from a configuration or files of
	// a load request.
	Outbound bool
	// HostParams are the names of the parameters that choose the machine's resources for the model's programs, such as
	// an interpreter. No request sets HostParams parameters: a file sent by a request for a model of the server keeps
	// the model's values.
	HostParams []string
	// Loads reports whether the kind loads a source other than the name of a kind: a path or an address. nil = none.
	Loads func(source string) bool
	// Folder reports whether a source with that file name stands for the folder of the file: the model is then named
	// after the folder. nil = no source.
	Folder func(file string) bool
	// File is the name of the file to load from the folder of a model's version in a repository, such as model.onnx;
	// "" = none.
	File string
	// FromEnsemble returns the parameters of the graph for an ensemble; only the kind graph has it.
	FromEnsemble func(Ensemble) (stream.Params, error)
	// Ensemble returns the ensemble for a graph with these settings.
	Ensemble func(settings any) Ensemble
	// Settings returns a pointer to a struct with the kind's own settings, tagged as internal/setting describes; nil
	// means no settings. A method Validate checks rules beyond the tags.
	Settings func() any
	// ExtraParams is the name of a setting, a list, for load parameters unknown to both the kind and the model, each as
	// NAME=VALUE with a value in JSON; "" = unknown parameters are refused.
	ExtraParams string
	// Variant returns the kind for models with these settings; nil means that settings change nothing. Only New,
	// Memory and Ahead may differ.
	Variant func(settings any) Kind
	// Uses returns the models used by a model with these settings; nil = none. Run of such a kind takes the requests
	// out of their batches (batching.Batch.Take), so that stages, windows and input.image cannot be set.
	Uses func(settings any) []Use
}

var kinds = struct {
	sync.Mutex
	m map[string]Kind
}{m: map[string]Kind{}}

// Table returns the kind's own settings.
func (k Kind) Table() *setting.Table { return k.table(k.newSettings()) }

func (k Kind) newSettings() any {
	if k.Settings == nil {
		return nil
	}
	return k.Settings()
}

// table returns the settings in ptr, a value of newSettings.
func (Kind) table(ptr any) *setting.Table {
	if ptr == nil {
		ptr = new(struct{})
	}
	return setting.TableOf("", ptr)
}

// Decode returns the kind's settings with the parameters and defaults filled in, or nil for a kind without settings.
// The error lists all wrong parameters.
func (k Kind) Decode(params stream.Params) (any, error) {
	ptr := k.newSettings()
	t := k.table(ptr)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(t.Below(""), strings.SplitN(name, ".", 2)[0]) {
			errs = append(errs, k.unknown(name, t))
			continue
		}
		errs = append(errs, t.SetParam(name, params[name]))
	}
	t.Fill()
	if v, ok := ptr.(interface{ Validate() error }); ok && setting.Join(errs...) == nil {
		errs = append(errs, v.Validate())
	}
	return ptr, setting.Join(errs...)
}

// unknown returns the error for a parameter unknown to the kind. others are the names of model settings allowed in
// the same place.
func (k Kind) unknown(name string, t *setting.Table, others ...string) error {
	own := t.Below("")
	hint := setting.SuggestPath(name, append(slices.Clone(own), others...))
	if hint == "" {
		hint = ": it has " + cmp.Or(strings.Join(own, ", "), "none")
		if len(others) > 0 {
			hint += "; every model has " + strings.Join(others, ", ")
		}
	}
	return stream.Errorf(stream.InvalidArgument, name, "is not a parameter of %s%s", k.Name, hint)
}

// Lookup returns a registered kind.
func Lookup(name string) (Kind, bool) {
	kinds.Lock()
	defer kinds.Unlock()
	k, ok := kinds.m[name]
	return k, ok
}

// kind returns the registered kind of c, as changed by the settings of c.
func (c *Config) kind() (Kind, bool) {
	k, ok := Lookup(c.Kind)
	if !ok || k.Variant == nil {
		return k, ok
	}
	settings, err := k.Decode(c.Params)
	if err != nil { // Validate reports the error
		return k, true
	}
	return k.Variant(settings), true
}

// Platform returns the platform in the metadata of a kind's models.
func Platform(kind string) string {
	k, _ := Lookup(kind)
	return cmp.Or(k.Platform, kind)
}

// Kinds returns the registered kinds by name.
func Kinds() []Kind {
	kinds.Lock()
	defer kinds.Unlock()
	return slices.SortedFunc(maps.Values(kinds.m), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}
