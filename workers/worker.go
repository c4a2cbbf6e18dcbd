package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"millrace/batching"
	"millrace/internal/setting"
	"millrace/stream"
)

// Worker is one instance of a model. A group makes each instance with its
// kind's Factory and calls, always from one and the same goroutine:
//
//	Init -> Allocate -> Acquire -> Run ... Run -> Release -> Deallocate -> Destroy
//
// What failed is not called again: when Acquire fails, Deallocate and Destroy
// follow. Embed Base to leave out all but Run.
type Worker interface {
	// Init reads the parameters and opens what all instances could share.
	// It returns the model's metadata; name, version and batching are filled in
	// by the group.
	Init(ctx context.Context, env *Env) (*stream.Model, error)
	// Allocate takes the memory that Run will use again and again.
	Allocate(ctx context.Context) error
	// Acquire takes the hardware or starts the process, and warms it up.
	Acquire(ctx context.Context) error
	// Run computes one batch. Each member ends by the batch's Finish or Fail, or
	// from its Outputs when Run returns nil; when it returns an error, that ends
	// the members without one. ErrBroken in its chain has the instance replaced.
	// ctx ends when the group gives up on the run.
	Run(ctx context.Context, b *batching.Batch) error
	Release()
	Deallocate()
	Destroy()
}

// ErrBroken says that an instance cannot go on: its process died, its device is
// gone. The group destroys it and starts another.
var ErrBroken = errors.New("the worker is broken")

// Env is what a worker is given.
type Env struct {
	Name   string // of the endpoint
	Source string // what to load, for kinds that load something
	Log    *slog.Logger

	// Settings is what the kind's Settings returned, with the parameters of the
	// configuration and of the load request, and defaults for all others.
	Settings any

	// What the configuration decides about the metadata that Init returns, for
	// workers that need to know it sooner than the group lays it over.
	MaxBatch int               // rows (batching.max_size); 0 = the worker's own choice
	Image    *stream.ImageSpec // nil = the worker's own
	Window   Window            // zero = none
}

// Base implements everything of Worker but Run and Init's metadata.
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
	New  func() Worker
	// Memory is where its batches lie unless the configuration says so; "" = heap.
	Memory batching.Backend
	// Foreign says that Run computes outside of Go, in C, and so holds one of the
	// Go scheduler's processors all the while.
	Foreign bool
	// Loads says whether a source, which is no name of a kind, is for this one: a path
	// or an address; nil = none is.
	Loads func(source string) bool
	// Settings returns a pointer to a struct with the kind's own settings, tagged as
	// internal/setting describes; nil = it has none.
	Settings func() any
}

var kinds = struct {
	sync.Mutex
	m map[string]Kind
}{m: map[string]Kind{}}

// Register adds a kind. It panics when the name is taken. Call it from init.
func Register(k Kind) {
	k.Table() // panics where tags make no sense
	kinds.Lock()
	defer kinds.Unlock()
	if _, taken := kinds.m[k.Name]; taken || k.New == nil {
		panic(fmt.Sprintf("workers: kind %q registered twice or without New", k.Name))
	}
	kinds.m[k.Name] = k
}

// Table is the kind's own settings.
func (k Kind) Table() *setting.Table { return k.table(k.newSettings()) }

func (k Kind) newSettings() any {
	if k.Settings == nil {
		return nil
	}
	return k.Settings()
}

// table is the settings that ptr points to, as newSettings returns it.
func (Kind) table(ptr any) *setting.Table {
	if ptr == nil {
		ptr = new(struct{})
	}
	return setting.Of("", ptr)
}

// Decode returns the kind's settings with the parameters and defaults in them: nil for
// a kind without settings. Errors name all parameters that are wrong.
func (k Kind) Decode(params stream.Params) (any, error) {
	ptr := k.newSettings()
	t := k.table(ptr)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		f, ok := t.Find(name)
		if !ok {
			errs = append(errs, k.unknown(name, t))
			continue
		}
		errs = append(errs, f.SetAny(params[name]))
	}
	t.Fill()
	return ptr, setting.Join(errs...)
}

// unknown is the error about a parameter that the kind does not have.
func (k Kind) unknown(name string, t *setting.Table) error {
	own := t.Below("")
	hint := setting.Suggest(name, own)
	switch {
	case hint == "" && len(own) == 0:
		hint = ": it has none"
	case hint == "":
		hint = ": it has " + strings.Join(own, ", ")
	}
	return stream.Errorf(stream.InvalidArgument, name, "is no parameter of %s%s", k.Name, hint)
}

// Lookup returns a registered kind.
func Lookup(name string) (Kind, bool) {
	kinds.Lock()
	defer kinds.Unlock()
	k, ok := kinds.m[name]
	return k, ok
}

// Kinds returns the registered kinds by name.
func Kinds() []Kind {
	kinds.Lock()
	defer kinds.Unlock()
	out := make([]Kind, 0, len(kinds.m))
	for _, k := range kinds.m {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
