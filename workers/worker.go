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

// Worker is one instance of a model. A group makes each instance with its kind's New
// and calls its methods, one at a time:
//
//	Init -> Allocate -> Acquire -> Run ... Run -> Release -> Deallocate -> Destroy
//
// When a step fails, only those before it are undone: when Acquire fails, Deallocate
// and Destroy follow. Embed Base to implement only Init and Run.
type Worker interface {
	// Init reads the parameters and opens what all instances could share. It returns
	// the model's metadata; the group sets name, version and batching.
	Init(ctx context.Context, env *Env) (*stream.Model, error)
	// Allocate allocates the memory that every Run uses.
	Allocate(ctx context.Context) error
	// Acquire takes the hardware or starts the process, and warms it up.
	Acquire(ctx context.Context) error
	// Run computes one batch. Each request is ended by the batch's Finish or Fail, or
	// from its Outputs when Run returns nil; when Run returns an error, that ends the
	// remaining requests. The stages after the run see the outputs of both. A worker that
	// calls Finish of a request itself does so only while b.After is nil: stages do not
	// see that. With ErrBroken in the error's chain the instance is replaced.
	// ctx ends when the group abandons the run. With Kind.Ahead it may be called while it
	// runs another batch.
	Run(ctx context.Context, b *batching.Batch) error
	Release()
	Deallocate()
	Destroy()
}

// Interrupter is a worker whose run can be ended early. At limits.run the group calls Interrupt, and the run returns with an error
// soon after: the requests of the batch fail, and the worker goes on. Only when the run does not return within interruptGrace is
// the worker replaced. Interrupt is called from another goroutine, from just before the call of Run until just after its return.
// After that the group calls ClearInterrupt: Interrupt must not end the next run.
type Interrupter interface {
	Interrupt()
	ClearInterrupt()
}

// ErrBroken says that an instance cannot run any more: its process has ended, its
// device has failed. The group destroys it and starts another.
var ErrBroken = errors.New("the worker is broken")

// ErrNotStarted says that Run has not begun the batch, since the worker is broken: it is run
// again when the worker was replaced, and none of its requests must have been ended. It
// implies ErrBroken.
var ErrNotStarted = errors.New("the worker broke before it began this batch")

// Env is what a worker gets from its group.
type Env struct {
	Name     string // the endpoint's name
	Instance int    // which of the endpoint's instances this is: 0, 1 ...; one that replaces another has its number
	Source   string // what to load, for kinds that load something
	Digest   string // of the model's files, to tell one state of them from another; "" = it has none
	Log      *slog.Logger

	// Settings is the struct that the kind's Settings returned, with the parameters of
	// the configuration and of the load request, and defaults for all others.
	Settings any

	// These override the metadata that Init returns, for workers that need to know them
	// before the group applies them.
	MaxBatch int               // rows (batching.max_size); 0 = the worker's own choice
	Image    *stream.ImageSpec // nil = the worker's own
	Window   Window            // zero = none
	Declared Declared          // the inputs and outputs that the model must have

	// These are for workers whose requests run through other models, or that bound their runs.
	Models Models                // finds loaded models
	Memory *buf.Pool             // of frames
	Pixels codec.Limits          // of pictures
	Limit  time.Duration         // limits.run: of a request that was taken from its batch, and of a batch of a kind with Ahead
	Step   func(*stream.Step)    // counts what a request did in one step
	Done   func(*stream.Request) // counts a request that was taken from its batch, after its ending

	// These are for workers that run in child processes.
	Shared    func(make func() any) any // returns what all instances of the group share; the first call makes it
	Processes *Processes                // counts the processes
	Programs  *confine.Programs         // confines the processes; nil = it does not
	// Requested are the parameters that a load request has set, which Settings have, too.
	Requested stream.Params
	// Public returns an error for an address that a load request must not name; nil = it may name every address.
	Public func(netip.Addr) error
	// Unready says why the model cannot serve now although its workers run, or with nil that it can. Any goroutine may
	// call it.
	Unready func(reason error)
	// Replace asks for another worker in place of this one, as soon as no Run is being called:
	// because of err, or as planned when err is nil. Any goroutine may call it.
	Replace func(err error)
	// StopBy returns when the worker must have stopped: then it is taken for hung, or the server ends.
	// It may become earlier. Any goroutine may call it.
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
	// Platform is what the metadata of its models say; "" = the name.
	Platform string
	New      func() Worker
	// Memory is where its batches are allocated unless the configuration says so; "" =
	// heap.
	Memory batching.Backend
	// Ahead says that an instance gets the next batch, if a full one waits, while it runs one:
	// Run is then called by a second goroutine. Such a kind bounds the time of each batch
	// itself, by Env.Limit: only it knows when it begins one (batching.Batch.Begin), and how
	// long it has waited for others (batching.Batch.Extend).
	Ahead bool
	// Outward says that its models connect to machines that their settings name: such settings come from the server's
	// configuration, or one by one as parameters of a load request, and not from a configuration or files that a load
	// request has sent.
	Outward bool
	// Machine are the names of its parameters that say with what of the machine its programs run, such as an interpreter. No request
	// sets them: a file that a request sends for a model of the server has those of that model.
	Machine []string
	// Loads reports whether the kind loads a source that is not the name of a kind: a
	// path or an address. nil means that it loads none.
	Loads func(source string) bool
	// File is the name of the file that it loads from the folder of a model's version in a
	// repository, such as model.onnx; "" = it loads none.
	File string
	// FromEnsemble returns the parameters of the graph for an ensemble; only the kind graph has it.
	FromEnsemble func(Ensemble) (stream.Params, error)
	// Ensemble returns the ensemble for a graph with these settings.
	Ensemble func(settings any) Ensemble
	// Settings returns a pointer to a struct with the kind's own settings, tagged as
	// internal/setting describes; nil means that it has none. With a method Validate it says
	// what the tags do not.
	Settings func() any
	// Others is the name of the setting, a list, that gets the load parameters which neither the kind nor the model declares, each as
	// NAME=VALUE with a value in JSON; "" = they are refused.
	Others string
	// Variant returns the kind as models with these settings have it; nil means that settings change nothing. Only New, Memory and
	// Ahead may differ.
	Variant func(settings any) Kind
	// Uses returns the models that one with these settings is made of; nil means that it
	// is made of none. Run takes the requests of such a kind out of their batches
	// (batching.Batch.Take), so that stages, windows and input.image cannot be set.
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

// table returns the settings that ptr points to, as newSettings returns it.
func (Kind) table(ptr any) *setting.Table {
	if ptr == nil {
		ptr = new(struct{})
	}
	return setting.Of("", ptr)
}

// Decode returns the kind's settings with the parameters and defaults in them, or nil
// for a kind without settings. The error names all parameters that are wrong.
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

// unknown returns the error about a parameter that the kind does not have. others are the names of the settings of every model that can be set in the same place.
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

// kind returns the registered kind of c, as it is with the settings of c.
func (c *Config) kind() (Kind, bool) {
	k, ok := Lookup(c.Kind)
	if !ok || k.Variant == nil {
		return k, ok
	}
	settings, err := k.Decode(c.Params)
	if err != nil { // Validate reports it
		return k, true
	}
	return k.Variant(settings), true
}

// Platform returns what the metadata of a kind's models say.
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
