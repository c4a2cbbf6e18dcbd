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

// Batcher decides when a batch is formed and how many rows it gets. It is pure
// logic: no goroutine, timer or lock inside; the group serialises the calls.
type Batcher interface {
	// Needs says what the group has to provide. It is asked once.
	Needs() Needs
	// Decide is asked when frames wait and a worker could start. take > 0 forms a
	// batch of up to take rows now; otherwise the group asks again after wait
	// (0: when something arrives).
	Decide(v View) (take int, wait time.Duration)
}

// View is what a batcher decides by: the frames that one batch could be made of,
// and who could run it.
type View struct {
	Rows    int // rows waiting, at least 1; past the batches of all idle workers they are not counted
	Idle    int // workers that could start now, at least 1
	Pending int // batches that could be formed now: this one and those of frames of other shapes

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

// NoDeadline is View.Deadline when no frame that waits has one.
const NoDeadline time.Duration = math.MaxInt64

// Needs are what a batcher declares. What it does not need is not computed.
type Needs struct {
	Oldest   bool // View.Oldest, which costs a look at each waiting stream
	Deadline bool // View.Deadline, which costs a locked look at each waiting stream
	// Arrivals has the batcher asked again with each frame that arrives, not only
	// with the first of a stream: for batchers that leave frames waiting while a
	// worker is idle.
	Arrivals bool
	// Full has a batch run only when it has as many rows as were decided on; what
	// was bound for it waits.
	Full bool
}

// Kind is a registered kind of batcher.
type Kind struct {
	Name   string
	Doc    string // one line
	create func(maxSize int, parts []any) Batcher
}

var kinds struct {
	sync.Mutex
	list []Kind
}

// Register adds a kind of batcher. create makes one of at most maxSize rows, with
// settings S: a tagged struct (see internal/setting), whose fields become settings of
// every model, in the section batching; struct{} for none. It panics when the name is taken. Call it
// from init, in the file of the kind.
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
	}})
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

// NewBatcher returns a batcher of the named kind, of at most maxSize rows. Its
// settings are in parts, a pointer to a struct such as SoftSettings, or else their
// defaults.
func NewBatcher(kind string, maxSize int, parts []any) (Batcher, error) {
	k, ok := lookup(kind)
	if !ok {
		var names []string
		for _, k := range Kinds() {
			names = append(names, k.Name)
		}
		return nil, stream.Errorf(stream.InvalidArgument, "batching.kind", "%q is not a batcher: there are %s", kind, strings.Join(names, ", "))
	}
	return k.create(maxSize, parts), nil
}
