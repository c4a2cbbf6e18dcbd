package workers

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"millrace/batching"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/workers/results"
)

// Config is how one model is loaded. Zero fields take the defaults of
// WithDefaults. Two configs that are Same make one group.
type Config struct {
	Name      string        // of the endpoint
	Version   string        // "" = "1"
	Kind      string        // a registered kind
	Source    string        // what the kind loads, if anything
	Params    stream.Params // for the worker
	Instances int           // workers
	Batching  Batching
	Policy    stream.Policy     // defaults of the model's streams
	Image     *stream.ImageSpec // overrides the kind's own
	Window    Window            // of its streams, as its input
	MaxFlows  int               // streams and one-shot callers at once: places in the queue
	Limits    Limits
	Parts     []any // settings of registered parts: batchers and stages; pointers to their structs, such as *batching.SoftSettings
}

// Batching is a model's batching.
type Batching struct {
	Kind    string // a registered kind; its own settings are in Parts
	MaxSize int    // rows; 0 = the worker's own choice
	Buffers int    // batches open or running at once; 0 = instances + 1
	Memory  batching.Backend
}

// Limits bound what a model's workers may do.
type Limits struct {
	Start       time.Duration // Init, Allocate and Acquire together
	Run         time.Duration // one batch; past it the members fail and the instance is quarantined
	Quarantined int           // hung instances at once; past it they are not replaced
	Restarts    int           // of one worker in a row without a good batch in between
	IdleState   time.Duration // the state of a stream that sends nothing is released after this
}

// hangsAfter is after how long a worker that starts or stops is taken to hang. Its own
// error, at Start, comes first.
func (l Limits) hangsAfter() time.Duration { return l.Start + min(l.Start, time.Second) }

// Defaults of a model's configuration.
const (
	DefaultMaxFlows    = 16384
	DefaultStart       = 60 * time.Second
	DefaultRun         = 30 * time.Second
	DefaultQuarantined = 4
	DefaultRestarts    = 5
	DefaultIdleState   = 5 * time.Minute
)

// WithDefaults returns c with its zero fields filled in.
func (c Config) WithDefaults() Config {
	setDefault(&c.Version, "1")
	setDefault(&c.Instances, 1)
	setDefault(&c.Batching.Kind, batching.Adaptive)
	if kind, ok := Lookup(c.Kind); ok {
		setDefault(&c.Batching.Memory, kind.Memory)
	}
	setDefault(&c.Batching.Memory, batching.Heap)
	setDefault(&c.MaxFlows, DefaultMaxFlows)
	setDefault(&c.Limits.Start, DefaultStart)
	setDefault(&c.Limits.Run, DefaultRun)
	setDefault(&c.Limits.Quarantined, DefaultQuarantined)
	setDefault(&c.Limits.Restarts, DefaultRestarts)
	setDefault(&c.Limits.IdleState, DefaultIdleState)
	return c
}

// buffers is the bound on batches. Its default follows the instances, which
// configs that are Same may differ in, so it is not filled in beforehand.
func (c Config) buffers() int {
	if c.Batching.Buffers > 0 {
		return c.Batching.Buffers
	}
	return c.Instances + 1
}

// buffersFor is the number of batches for so many workers. Fewer than there are
// instances are a throttle, and meant.
func (c Config) buffersFor(workers int) int {
	b := c.buffers()
	if b > c.Instances {
		b = max(b, workers+1)
	}
	return b
}

func setDefault[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

// Validate names the first setting that is out of bounds.
func (c Config) Validate() error {
	kind, known := Lookup(c.Kind)
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	switch {
	case c.Name == "":
		return bad("name", "is empty")
	case len(c.Name) > 128:
		return bad("name", "is longer than 128 bytes")
	case !known:
		return stream.Errorf(stream.NotFound, "source", "%q is no kind of worker: see `millrace models --kinds`", c.Kind)
	case c.Instances < 1 || c.Instances > 1024:
		return bad("instances", "%d is not between 1 and 1024", c.Instances)
	case c.Batching.MaxSize < 0 || c.Batching.MaxSize > 4096:
		return bad("batching.max_size", "%d is not between 1 and 4096", c.Batching.MaxSize)
	case c.Batching.Buffers < 0 || c.Batching.Buffers > 4096:
		return bad("batching.buffers", "%d is not between 1 and 4096", c.Batching.Buffers)
	case c.MaxFlows < 1 || c.MaxFlows > 1<<20:
		return bad("max_flows", "%d is not between 1 and %d", c.MaxFlows, 1<<20)
	case c.Limits.Run < time.Millisecond:
		return bad("limits.run", "%v is less than 1ms", c.Limits.Run)
	case c.Limits.Start < time.Millisecond:
		return bad("limits.start", "%v is less than 1ms", c.Limits.Start)
	}
	if _, err := kind.Decode(c.Params); err != nil {
		return err
	}
	if _, err := batching.NewBatcher(c.Batching.Kind, 1, c.Parts); err != nil {
		return err
	}
	if err := results.Validate(c.Parts); err != nil {
		return err
	}
	if err := checkParts(c.Parts); err != nil {
		return err
	}
	if err := c.Window.validate(); err != nil {
		return err
	}
	return c.Policy.Validate()
}

// Same says whether two configs, with defaults filled in, mean the same group.
func (c Config) Same(d Config) bool {
	sameImage := (c.Image == nil) == (d.Image == nil) && (c.Image == nil || *c.Image == *d.Image)
	return c.Version == d.Version && c.Kind == d.Kind && c.Source == d.Source && maps.Equal(c.Params, d.Params) &&
		c.Batching == d.Batching && c.Policy == d.Policy && c.MaxFlows == d.MaxFlows && c.Limits == d.Limits && c.Window == d.Window && sameImage && sameParts(c.Parts, d.Parts)
}

// checkParts names the first setting of a registered part that is out of bounds.
func checkParts(parts []any) error {
	t := setting.Of("", &struct{}{})
	t.AddParts(setting.Model, &parts)
	if errs := t.Check(); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// sameParts says whether both have the same settings of the same parts.
func sameParts(a, b []any) bool {
	in := func(p any, parts []any) bool {
		return slices.ContainsFunc(parts, func(q any) bool { return reflect.DeepEqual(p, q) })
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p any) bool { return !in(p, b) })
}
