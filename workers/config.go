package workers

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"millrace/batching"
	"millrace/internal/modelurl"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/workers/results"
)

// Config is the configuration of one model. Zero fields take their defaults. The tags give the keys of the
// configuration file. Equal configurations, by CanShareGroup, share one group.
type Config struct {
	Name   string `yaml:"name" form:"name" help:"name of the endpoint"`
	Source string `yaml:"source" help:"a kind of worker, or the file, folder or address of the model"`
	Kind   string // a registered kind of worker; "" = the kind that loads Source

	Poll time.Duration `yaml:"poll" min:"1ms" max:"24h" unset:"never" example:"1m" advanced:"yes" help:"with an address as the source: time between two looks for a new state, which is then loaded"`

	Version   string             `yaml:"version" default:"1" advanced:"yes" help:"version of the model"`
	Instances int                `yaml:"instances" default:"1" min:"1" max:"1024" request:"64" help:"number of workers"`
	Order     string             `yaml:"instance_order" default:"recent" words:"recent turns" advanced:"yes" help:"which idle worker runs the next batch: recent = the last worker that ran, with warm caches; turns = the worker idle for longest, so that all workers get work"`
	MaxFlows  int                `yaml:"max_flows" default:"16384" min:"1" max:"1048576" advanced:"yes" help:"most streams and one-shot requests at once; each has a place in the queue"`
	Batching  Batching           `yaml:"batching"`
	Image     *stream.ImageSpec  `yaml:"input.image"` // overrides the kind's own
	Window    Window             `yaml:"window"`
	Cache     Cache              `yaml:"cache"`
	Sequences stream.Sequences   `yaml:"sequences"` // of requests, for models that keep state
	Policy    stream.Policy      `yaml:"stream"`    // defaults of the model's streams; clients may choose others
	Queue     stream.QueuePolicy `yaml:"queue" request:"any"`
	Limits    Limits             `yaml:"limits"`

	Versions Versions `yaml:"versions"`
	Shadow   Shadow   `yaml:"shadow"`

	// Folder has the files of the model's version, if the model is in a repository; "" = the model's only file is
	// Source.
	Folder string

	// Declared are the inputs and outputs that the model must have, from Tensors or from a configuration of another
	// form.
	Declared Declared
	Tensors  Tensors `yaml:"tensors"`

	// Params are the parameters of the kind of worker, by the names of its settings;
	// nested names are joined by dots.
	Params stream.Params
	// Parts are the settings of batchers and stages: pointers to their structs, such as
	// *batching.SoftSettings.
	Parts []any

	request      stream.Params // parameters of the load request
	ownInstances int           // Instances without the load request's value; 0 = the same
}

// takeTurns is a value of Config.Order.
const takeTurns = "turns"

// Versions select the served versions of a model in a repository, and the versions for requests without a version.
type Versions struct {
	Latest   int      `yaml:"latest" unset:"1" min:"1" max:"64" advanced:"yes" help:"serve this many of the highest versions"`
	All      bool     `yaml:"all" advanced:"yes" help:"serve all versions"`
	Specific []string `yaml:"specific" example:"1" advanced:"yes" help:"serve these versions"`
	Weights  []string `yaml:"weights" example:"1=95" unset:"all to the highest version" advanced:"yes" help:"how requests without a version are spread over the versions, as VERSION=WEIGHT"`
}

// Shadow is a version that gets copies of requests, only to compare the answers.
type Shadow struct {
	Version   string  `yaml:"version" advanced:"yes" help:"a version that runs copies of requests. The results are compared and counted, and answer only requests for this version (all requests when no further version is left)"`
	Sample    float64 `yaml:"sample" default:"1" above:"0" max:"1" advanced:"yes" help:"share of the requests that is copied"`
	Tolerance float64 `yaml:"tolerance" min:"0" unset:"0" advanced:"yes" help:"largest difference of two equal numbers"`
	IoU       float64 `yaml:"iou" default:"0.5" above:"0" max:"1" advanced:"yes" help:"least intersection over union of two equal boxes"`
}

// Batching is a model's batching. The settings of each kind of batcher are in Parts.
type Batching struct {
	Kind    BatcherKind      `yaml:"kind" default:"adaptive" request:"any" short:"batcher" advanced:"yes" help:"when a batch runs (docs/architecture.md)"`
	MaxSize int              `yaml:"max_size" unset:"the worker's own choice" min:"1" max:"4096" request:"any" short:"max_size batch_size" help:"most rows in a batch. The batches of all models take at most half of memory.budget"`
	Buffers int              `yaml:"buffers" unset:"instances + 1" min:"1" max:"4096" advanced:"yes" help:"most batches gathered or running at once"`
	Memory  batching.Backend `yaml:"memory" unset:"the worker's own choice" words:"heap c shared" advanced:"yes" help:"where the memory of batches is allocated; shared = memory that child processes can map (Linux)"`
}

// Cache keeps results of one-shot requests of a model, for equal requests.
type Cache struct {
	Size int64 `yaml:"size" unset:"no cache" min:"4KiB" max:"1TiB" unit:"bytes" request:"any" advanced:"yes" help:"bytes of kept results of one-shot requests: an equal request is answered without a run. Only for models without state or randomness"`
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
	Start       time.Duration `yaml:"start" default:"1m" min:"1ms" advanced:"yes" help:"longest time to start a worker"`
	Run         time.Duration `yaml:"run" default:"30s" min:"1ms" request:"10m" help:"longest run of a batch; beyond, the frames of the batch fail and the worker is replaced"`
	Quarantined int           `yaml:"quarantined" default:"4" advanced:"yes" help:"most hung workers at once; further hung workers are not replaced"`
	Restarts    int           `yaml:"restarts" default:"5" advanced:"yes" help:"most restarts of a worker in a row, without an answer or a minute of running between; -1 = never restart"`
	IdleState   time.Duration `yaml:"idle_state" default:"5m" advanced:"yes" help:"release the state of a stream after this time without frames"`
}

// hangsAfter is the time after which a starting or stopping worker is considered hung; longer than Start, so that the
// worker's own error comes first.
func (l Limits) hangsAfter() time.Duration { return l.Start + min(l.Start, time.Second) }

// runBound is the longest time of a call of Run. For a kind that prepares batches ahead, the call begins during the
// previous run. Such a kind ends its runs itself after limits.run, so the bound only catches a hung kind.
func (l Limits) runBound(ahead bool) time.Duration {
	if ahead {
		return 2*l.Run + min(l.Start, 10*time.Second)
	}
	return l.Run
}

// watchInterval is the time between two checks of the watchdog for hung workers.
func (l Limits) watchInterval() time.Duration {
	return min(max(l.Run/8, 5*time.Millisecond), time.Second)
}

// Table returns the settings of the model, with those of registered parts and without
// the parameters of the kind of worker.
func (c *Config) Table() *setting.Table {
	t := setting.TableOf("", c)
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
	if kind, ok := c.kind(); ok && c.Batching.Memory == "" {
		c.Batching.Memory = kind.Memory
	}
	if c.Batching.Memory == "" {
		c.Batching.Memory = batching.Heap
	}
	setting.DetachCopies(&c)
	c.Table().Fill()
	if d, err := c.Tensors.declared(c.Batching.MaxSize > 0); err == nil && len(d.Inputs)+len(d.Outputs) > 0 {
		c.Declared = d
	}
	return c
}

// buffers returns the bound on batches. The default depends on the instances, which may differ between configurations
// for which CanShareGroup is true, so WithDefaults does not set the field.
func (c Config) buffers() int {
	if c.Batching.Buffers > 0 {
		return c.Batching.Buffers
	}
	return c.batchesOf(c.Instances)
}

// ahead reports whether the kind prepares batches ahead.
func (c Config) ahead() bool {
	kind, _ := c.kind()
	return kind.Ahead
}

// batchesOf returns the largest number of batches that the given number of workers can have, plus 1.
func (c Config) batchesOf(workers int) int {
	if c.ahead() {
		workers *= 2
	}
	return workers + 1
}

// buffersFor returns the number of batches for so many workers. A number below the
// configured instances is a throttle and stays as it is.
func (c Config) buffersFor(workers int) int {
	b := c.buffers()
	if b > c.Instances {
		b = max(b, c.batchesOf(workers))
	}
	return b
}

// Validate returns all errors, each with the path of its setting.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, "name",
			"is empty: want 1 to 128 letters, digits, dots, dashes or underscores"))
	}
	if c.Kind == "" {
		_, _, err := KindOf(c.Source)
		errs = append(errs, err)
	}
	if c.Poll > 0 && !modelurl.Is(c.Source) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, "poll", "needs an address as the source, such as "+
			"git+https://: for files, see model_control_mode and watch"))
	}
	errs = append(errs, results.Validate(c.Parts))
	c = c.WithDefaults()
	if _, err := batching.NewBatcher(string(c.Batching.Kind), 1, nil); err == nil {
		errs = append(errs, batching.CheckParts(string(c.Batching.Kind), c.Parts))
	}
	if kind, known := Lookup(c.Kind); known {
		_, err := kind.Decode(c.Params)
		errs = append(errs, err)
	} else if c.Kind != "" {
		errs = append(errs, stream.Errorf(stream.NotFound, "source",
			"%q is not a kind of worker: see `millrace models --kinds`", c.Kind))
	}
	errs = append(errs, c.Table().Check()...)
	errs = append(errs, checkImage(c.Image))
	_, err := c.Tensors.declared(c.Batching.MaxSize > 0)
	errs = append(errs, err)
	return setting.Join(errs...)
}

func checkImage(s *stream.ImageSpec) error {
	if s != nil && s.Std != [3]float32{} && slices.Contains(s.Std[:], 0) {
		return stream.Errorf(stream.InvalidArgument, "input.image.std", "%v contains 0, but pixels are divided by it",
			s.Std)
	}
	return nil
}

// CanShareGroup reports whether two configs, with defaults filled in, can share a group. The
// name and the number of workers may differ.
func (c Config) CanShareGroup(d Config) bool {
	if !maps.Equal(c.Params, d.Params) || !sameParts(c.Parts, d.Parts) {
		return false
	}
	for _, x := range []*Config{&c, &d} {
		x.Name, x.Instances, x.ownInstances, x.Params, x.Parts, x.request = "", 0, 0, nil, nil, nil
		x.Versions, x.Shadow = Versions{}, Shadow{} // of the endpoint
	}
	return reflect.DeepEqual(c, d)
}

// sameParts reports whether both have the same settings of the same parts.
func sameParts(a, b []any) bool {
	in := func(p any, parts []any) bool {
		return slices.ContainsFunc(parts, func(q any) bool { return reflect.DeepEqual(p, q) })
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p any) bool { return !in(p, b) })
}
