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

// Batcher decides when a batch is formed and how many rows it gets. It computes only:
// it has no goroutine, timer or lock, and the group calls it from one goroutine at a
// time.
type Batcher interface {
	// Needs says what the group has to provide. It is called once.
	Needs() Needs
	// Decide is called when frames wait and a worker could start. take > 0 forms a
	// batch of up to take rows now; otherwise the group calls Decide again after wait,
	// or when wait is 0 once something arrives.
	Decide(v View) (take int, wait time.Duration)
}

// View is what a batcher decides by: the frames that one batch could be made of, and
// the workers that could run it.
type View struct {
	Rows int // rows waiting, at least 1; rows that the idle workers cannot run at once are not counted
	Idle int // workers that could start now, at least 1
	// Pending is how many batches could be formed now: this one and those of frames with
	// other shapes. It is set for batchers that need it.
	Pending int

	// Oldest is how long the oldest frame has waited. It is set while less than a
	// full batch waits, for batchers that need it.
	Oldest time.Duration
	// Deadline is the time until the nearest deadline of the frames that wait, or
	// NoDeadline. It is set while less than a full batch waits, for batchers that
	// need it.
	Deadline time.Duration
	// Predict returns how long a batch of n rows will take, preparation and run
	// together, or 0 when nothing has been measured yet.
	Predict func(n int) time.Duration
}

// NoDeadline is View.Deadline when no waiting frame has a deadline.
const NoDeadline time.Duration = math.MaxInt64

// Needs are what a batcher needs to know. What it does not need is not computed.
type Needs struct {
	Pending  bool // View.Pending, which needs a look at each pending batch
	Oldest   bool // View.Oldest, which needs a read of each waiting stream
	Deadline bool // View.Deadline, which needs the lock of each waiting stream
	// Arrivals makes the group call Decide for each frame that arrives, not only for
	// the first of a stream. Batchers need it that let frames wait while a worker is
	// idle.
	Arrivals bool
	// Full makes the group run a batch only when it has as many rows as Decide took;
	// frames bound to it wait until then.
	Full bool
}

// Kind is a registered kind of batcher.
type Kind struct {
	Name   string
	Doc    string // one line
	create func(maxSize int, parts []any) Batcher
	typ    reflect.Type // of its settings
}

var kinds struct {
	sync.Mutex
	list []Kind
}

// Register adds a kind of batcher. create makes one of at most maxSize rows, with
// settings S: a tagged struct (see internal/setting), whose fields become settings of
// every model, in the section batching; struct{} for none. It panics when the name is
// registered already. Call it from init, in the file of the kind.
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

// of returns the kind of batcher whose settings part is, if it is one's.
func of(part any) (Kind, bool) {
	for _, k := range Kinds() {
		if reflect.TypeOf(part) == reflect.PointerTo(k.typ) {
			return k, true
		}
	}
	return Kind{}, false
}

// CheckParts returns an error for each setting in parts that belongs to another kind of
// batcher than kind, where it would have no effect. One that has its default may have
// been filled in.
func CheckParts(kind string, parts []any) error {
	var errs []error
	for _, p := range parts {
		k, ok := of(p)
		if !ok || k.Name == kind {
			continue
		}
		for _, f := range setting.Of("batching", p).Fields() {
			if v := f.String(); v != "" && v != f.Default {
				errs = append(errs, stream.Errorf(stream.InvalidArgument, f.Path, "is a setting of the batcher %s, and batching.kind is %s: leave it out, or choose %s", k.Name, kind, k.Name))
			}
		}
	}
	return setting.Join(errs...)
}

// PartsOf returns parts without the settings of other kinds of batchers than kind.
func PartsOf(kind string, parts []any) []any {
	return slices.DeleteFunc(slices.Clone(parts), func(p any) bool {
		k, ok := of(p)
		return ok && k.Name != kind
	})
}

// NewBatcher returns a batcher of the named kind, of at most maxSize rows. Its settings
// are taken from parts (a pointer to a struct such as SoftSettings), or are the
// defaults.
func NewBatcher(kind string, maxSize int, parts []any) (Batcher, error) {
	k, ok := lookup(kind)
	if !ok {
		var names []string
		for _, k := range Kinds() {
			names = append(names, k.Name)
		}
		return nil, stream.Errorf(stream.InvalidArgument, "batching.kind", "%q is not a batcher: the batchers are %s", kind, strings.Join(names, ", "))
	}
	return k.create(maxSize, parts), nil
}
