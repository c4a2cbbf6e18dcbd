package batching

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/setting"
	"millrace/stream"
)

// Batcher decides when a batch is formed and how many rows the batch gets. A Batcher only computes, without
// goroutines, timers or locks; the group calls a Batcher from one goroutine at a time.
type Batcher interface {
	// Needs returns which information the group must provide. Needs is called once.
	Needs() Needs
	// Decide is called when frames wait and a worker could start. take > 0 forms a
	// batch of up to take rows now; otherwise the group calls Decide again after wait,
	// or when wait is 0 once something arrives.
	Decide(v View) (take int, wait time.Duration)
}

// View is the input of a batcher's decision: the frames available for one batch, and the workers available for the
// run.
type View struct {
	Rows int // rows waiting, at least 1, and at most as many as the idle workers can run at once
	Idle int // workers that could start now, at least 1
	// Pending is the number of batches that could be formed now, including batches of other shapes. Set only for
	// batchers with Needs.Pending.
	Pending int

	// Oldest is the waiting time of the oldest frame. Set while less than a full batch waits, for batchers with
	// Needs.Oldest.
	Oldest time.Duration
	// Deadline is the time until the nearest deadline of the waiting frames, or NoDeadline. Set while less than a
	// full batch waits, for batchers with Needs.Deadline.
	Deadline time.Duration
	// Predict returns how long a batch of n rows will take, preparation and run
	// together, or 0 when nothing has been measured yet.
	Predict func(n int) time.Duration
}

// NoDeadline is View.Deadline when no waiting frame has a deadline.
const NoDeadline time.Duration = math.MaxInt64

// Needs lists the information used by a batcher. Other information is not computed.
type Needs struct {
	Pending  bool // View.Pending, at the cost of looking at each pending batch
	Oldest   bool // View.Oldest, at the cost of reading each waiting stream
	Deadline bool // View.Deadline, at the cost of each waiting stream's lock
	// Arrivals makes the group call Decide for each arriving frame, also when frames of the same stream wait already.
	// Batchers that let frames wait while a worker is idle need Arrivals.
	Arrivals bool
	// Full makes the group run a batch only when all rows taken by Decide are bound; bound frames wait until then.
	Full bool
}

// Kind is a registered kind of batcher.
type Kind struct {
	Name   string
	Doc    string // a single line
	create func(maxSize int, parts []any) Batcher
	typ    reflect.Type // of the settings
}

var kinds struct {
	sync.Mutex
	list []Kind
}

// Register adds a kind of batcher. create makes a batcher of at most maxSize rows with settings S, a tagged struct
// (see internal/setting); the fields of S become settings of every model, in the section batching; use struct{} for
// no settings. Register panics when the name is already registered. Call Register from init, in the file of the kind.
func Register[S any](name, doc string, create func(maxSize int, settings S) Batcher) {
	if _, taken := lookup(name); taken {
		panic(fmt.Sprintf("batching: kind %q registered twice", name))
	}
	if reflect.TypeFor[S]().NumField() > 0 {
		setting.Register[S](setting.Model, "batching")
	}
	kinds.Lock()
	defer kinds.Unlock()
	kinds.list = append(kinds.list, Kind{name, doc, func(maxSize int, parts []any) Batcher {
		settings, _ := setting.Part[S](parts)
		return create(maxSize, settings)
	}, reflect.TypeFor[S]()})
}

// Kinds returns the registered kinds by name.
func Kinds() []Kind {
	kinds.Lock()
	defer kinds.Unlock()
	return slices.SortedFunc(slices.Values(kinds.list), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

func lookup(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// kindOf returns the kind of batcher with settings of the type of part, if any.
func kindOf(part any) (Kind, bool) {
	for _, k := range Kinds() {
		if reflect.TypeOf(part) == reflect.PointerTo(k.typ) {
			return k, true
		}
	}
	return Kind{}, false
}

// CheckParts returns an error for each setting in parts that belongs to a kind of batcher other than kind and would
// have no effect. Settings equal to their default are allowed, since defaults may have been filled in.
func CheckParts(kind string, parts []any) error {
	var errs []error
	for _, p := range parts {
		k, ok := kindOf(p)
		if !ok || k.Name == kind {
			continue
		}
		for _, f := range setting.TableOf("batching", p).Fields() {
			if v := f.String(); v != "" && v != f.Default {
				errs = append(errs, stream.Errorf(stream.InvalidArgument, f.Path,
					"is a setting of the batcher %s, and batching.kind is %s: leave it out, or choose %s", k.Name,
					kind, k.Name))
			}
		}
	}
	return setting.Join(errs...)
}

// PartsOf returns parts without the settings of kinds of batchers other than kind.
func PartsOf(kind string, parts []any) []any {
	return slices.DeleteFunc(slices.Clone(parts), func(p any) bool {
		k, ok := kindOf(p)
		return ok && k.Name != kind
	})
}

// NewBatcher returns a batcher of the named kind, of at most maxSize rows. The settings come from parts (a pointer to
// a struct, for example SoftSettings), or are the defaults.
func NewBatcher(kind string, maxSize int, parts []any) (Batcher, error) {
	k, ok := lookup(kind)
	if !ok {
		var names []string
		for _, k := range Kinds() {
			names = append(names, k.Name)
		}
		return nil, stream.Errorf(stream.InvalidArgument, "batching.kind", "%q is not a batcher: the batchers are %s",
			kind, strings.Join(names, ", "))
	}
	return k.create(maxSize, parts), nil
}
