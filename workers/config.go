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

// Config is how one model is loaded. Zero fields take their defaults. The tags name
// its keys in the configuration file. Two configs that are Same make one group.
type Config struct {
	Name   string `yaml:"name" form:"name" help:"of the endpoint"`
	Source string `yaml:"source" help:"a kind of worker, or what to load"`
	Kind   string // a registered kind of worker; "" = the one that Source is for

	Version   string            `yaml:"version" default:"1" help:"of the model"`
	Instances int               `yaml:"instances" default:"1" min:"1" max:"1024" request:"64" help:"workers"`
	MaxFlows  int               `yaml:"max_flows" default:"16384" min:"1" max:"1048576" help:"streams and one-shot callers at once: places in the queue"`
	Batching  Batching          `yaml:"batching"`
	Image     *stream.ImageSpec `yaml:"input.image"` // overrides the kind's own
	Window    Window            `yaml:"window"`
	Policy    stream.Policy     `yaml:"stream"` // defaults of the model's streams; clients choose for themselves
	Limits    Limits            `yaml:"limits"`

	// Params are the parameters of the kind of worker, by the names that it gives
	// its settings; nested names are joined by dots.
	Params stream.Params
	// Parts are settings of registered parts, batchers and stages: pointers to their
	// structs, such as *batching.SoftSettings.
	Parts []any
}

// Batching is a model's batching. What a kind of batcher can be told is in Parts.
type Batching struct {
	Kind    BatcherKind      `yaml:"kind" default:"adaptive" request:"any" short:"batcher" help:"when a batch goes"`
	MaxSize int              `yaml:"max_size" unset:"the worker's own choice" min:"1" max:"4096" request:"any" short:"max_size batch_size" help:"rows of a batch; the batches of all models take at most half of memory.budget, for as long as they are loaded. What an ONNX model computes between its inputs and outputs grows with it too and is not counted"`
	Buffers int              `yaml:"buffers" unset:"instances + 1" min:"1" max:"4096" help:"batches open or running at once"`
	Memory  batching.Backend `yaml:"memory" unset:"the worker's own choice" words:"heap c" help:"where batches lie"`
}

// BatcherKind names a registered kind of batcher.
type BatcherKind string

// Words returns the names of the registered kinds.
func (BatcherKind) Words() (names []string) {
	for _, k := range batching.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// Limits bound what a model's workers may do.
type Limits struct {
	Start       time.Duration `yaml:"start" default:"1m" min:"1ms" help:"time that a worker may take to start"`
	Run         time.Duration `yaml:"run" default:"30s" min:"1ms" request:"10m" help:"time that a batch may take; past it its frames fail and the worker is replaced"`
	Quarantined int           `yaml:"quarantined" default:"4" help:"hung workers at once; past it they are not replaced"`
	Restarts    int           `yaml:"restarts" default:"5" help:"of one worker in a row, without a good batch in between"`
	IdleState   time.Duration `yaml:"idle_state" default:"5m" help:"a silent stream's state is released after it"`
}

// hangsAfter is after how long a worker that starts or stops is taken to hang. Its own
// error, at Start, comes first.
func (l Limits) hangsAfter() time.Duration { return l.Start + min(l.Start, time.Second) }

// Table is the settings of the model, those of registered parts included. Parameters
// of the kind of worker are not among them.
func (c *Config) Table() *setting.Table {
	t := setting.Of("", c)
	t.AddParts(setting.Model, &c.Parts)
	return t
}

// WithDefaults returns c with its zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Kind == "" {
		if kind, load, err := KindOf(c.Source); err == nil {
			c.Kind, c.Source = kind, load
		}
	}
	if kind, ok := Lookup(c.Kind); ok && c.Batching.Memory == "" {
		c.Batching.Memory = kind.Memory
	}
	if c.Batching.Memory == "" {
		c.Batching.Memory = batching.Heap
	}
	setting.Own(&c)
	c.Table().Fill()
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

// Validate says everything that is wrong, each error with the path of the setting.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, "name", "\"\" is no name: want 1 to 128 letters, digits, dots, dashes or underscores"))
	}
	if c.Kind == "" {
		_, _, err := KindOf(c.Source)
		errs = append(errs, err)
	}
	errs = append(errs, results.Validate(c.Parts))
	c = c.WithDefaults()
	if kind, known := Lookup(c.Kind); known {
		_, err := kind.Decode(c.Params)
		errs = append(errs, err)
	} else if c.Kind != "" {
		errs = append(errs, stream.Errorf(stream.NotFound, "source", "%q is no kind of worker: see `millrace models --kinds`", c.Kind))
	}
	errs = append(errs, c.Table().Check()...)
	errs = append(errs, checkImage(c.Image))
	return setting.Join(errs...)
}

func checkImage(s *stream.ImageSpec) error {
	if s != nil && s.Std != [3]float32{} && slices.Contains(s.Std[:], 0) {
		return stream.Errorf(stream.InvalidArgument, "input.image.std", "%v holds a 0, which nothing can be divided by", s.Std)
	}
	return nil
}

// Same says whether two configs, with defaults filled in, mean the same group:
// whatever its name and the number of its workers.
func (c Config) Same(d Config) bool {
	if !maps.Equal(c.Params, d.Params) || !sameParts(c.Parts, d.Parts) {
		return false
	}
	for _, x := range []*Config{&c, &d} {
		x.Name, x.Instances, x.Params, x.Parts = "", 0, nil, nil
	}
	return reflect.DeepEqual(c, d)
}

// sameParts says whether both have the same settings of the same parts.
func sameParts(a, b []any) bool {
	in := func(p any, parts []any) bool {
		return slices.ContainsFunc(parts, func(q any) bool { return reflect.DeepEqual(p, q) })
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p any) bool { return !in(p, b) })
}
