package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/workers"
)

// Config holds all settings. A zero field has its default. The tags name the key of the
// file, from which the names of the flag and the variable are derived.
type Config struct {
	HTTP        string        `yaml:"http" form:"address" default:"127.0.0.1:8000" help:"address of REST and WebSocket, or off"`
	GRPC        string        `yaml:"grpc" form:"address" default:"127.0.0.1:8001" help:"address of gRPC, or off"`
	Metrics     Metrics       `yaml:"metrics"`
	Name        string        `yaml:"name" default:"millrace" help:"name of the server in its metadata: triton for programs that look for that one"`
	Hosts       []string      `yaml:"hosts" help:"further names of the server that the Host header of a request may have; *.example.org = all that end so, * = any"`
	Origins     []string      `yaml:"origins" help:"further web origins whose pages may use the server; * = any"`
	Memory      Memory        `yaml:"memory"`
	Limits      ingest.Limits `yaml:"limits"`
	Log         Log           `yaml:"log"`
	StreamsFile string        `yaml:"streams_file" path:"file" help:"a file that stores the server streams added by requests, so that they start again with the server"`
	Drain       time.Duration `yaml:"drain" default:"10s" max:"1h" help:"how long frames in flight may take when the server shuts down"`
	Sources     Sources       `yaml:"sources"`

	SharedMemory *bool `yaml:"shared_memory" default:"true" help:"clients on the same machine may have tensors in shared memory (POSIX, /dev/shm)"`

	TLS        TLS        `yaml:"tls"`
	ONNX       ONNX       `yaml:"onnx"`
	Repository Repository `yaml:",inline"`

	Models  []workers.Config // loaded at the start; entries of models in the file
	Streams []streams.Config // server streams; entries of streams in the file

	// Parts holds the settings of registered parts: pointers to their structs, which may
	// have a method Validate() error.
	Parts []any

	Version string // of the program; not in the file
	Clip    []byte // an MP4 that the console can stream, nil = none; not in the file
}

// Memory bounds the memory of frames, results and batches. Batches use at most half of it.
type Memory struct {
	Budget int64 `yaml:"budget" default:"1GiB" min:"1MiB" unit:"bytes" help:"bytes of memory for frames, results and batches"`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" default:"info" words:"debug info warn error" help:"least level that is logged"`
	Format string `yaml:"format" default:"text" words:"text json" help:"format of the lines"`
	File   string `yaml:"file" help:"a file to which the log is also appended, beside standard error"`

	DebugRate int `yaml:"debug_rate" default:"20" min:"1" max:"1000000" help:"most lines a second for the frames of one model, or the requests of one route, at level debug; the others are counted as suppressed"`
}

// Metrics configures the metrics for Prometheus.
type Metrics struct {
	Address  string    `yaml:"address" form:"address" unset:"on the address http" help:"a separate address for the metrics, or off"`
	Path     string    `yaml:"path" default:"/metrics" form:"route" help:"the route of the metrics"`
	Requests *bool     `yaml:"requests" default:"true" help:"also count HTTP requests by route: the metrics whose names begin with http_"`
	Buckets  []float64 `yaml:"buckets" example:"0.1" unset:"0.01 to 60: see docs/metrics.md" help:"buckets of the durations of HTTP requests, in seconds, each more than the one before"`
	Streams  *int      `yaml:"streams" default:"500" min:"0" max:"100000" help:"server streams that have metrics of their own, one of several models counted as so many; those of the others are added up, and raise no alert of their sources and results"`
	Triton   bool      `yaml:"triton" help:"also give metrics under the names that dashboards of Triton Inference Server read: those that begin with nv_"`
	Pprof    bool      `yaml:"pprof" help:"also serve profiles of the process, at /debug/pprof/ of metrics.address"`
}

// Separate reports whether the metrics are not on the address http.
func (m Metrics) Separate() bool { return m.Address != "" }

// FirstSet returns the path of a setting that differs from its default, or "".
func (m Metrics) FirstSet() string {
	d := Config{}.WithDefaults().Metrics
	switch {
	case m.Address != "":
		return "metrics.address"
	case m.Path != "" && m.Path != d.Path:
		return "metrics.path"
	case m.Requests != nil && *m.Requests != *d.Requests:
		return "metrics.requests"
	case len(m.Buckets) > 0:
		return "metrics.buckets"
	case m.Streams != nil && *m.Streams != *d.Streams:
		return "metrics.streams"
	case m.Triton:
		return "metrics.triton"
	case m.Pprof:
		return "metrics.pprof"
	}
	return ""
}

func (m Metrics) validate() error {
	switch {
	case m.Pprof && (m.Address == "" || m.Address == Off):
		return coded.Errorf(coded.InvalidArgument, "metrics.pprof", "needs metrics.address: profiles are not served on the address http")
	case m.Pprof && strings.HasPrefix(m.Path, ProfilesRoute):
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of metrics.pprof", m.Path)
	}
	if m.Path == "/" || underReserved(m.Path) {
		return coded.Errorf(coded.InvalidArgument, "metrics.path", "%q is a route of the server already", m.Path)
	}
	for i, b := range m.Buckets {
		switch {
		case b <= 0:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "%v is not more than 0", b)
		case i > 0 && b <= m.Buckets[i-1]:
			return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "%v does not rise above %v, the bucket before it", b, m.Buckets[i-1])
		}
	}
	if n := len(m.Buckets); n > maxBuckets {
		return coded.Errorf(coded.InvalidArgument, "metrics.buckets", "has %d buckets: want at most %d, since each is a series for each route", n, maxBuckets)
	}
	return nil
}

const maxBuckets = 100

// ProfilesRoute is where metrics.pprof serves profiles.
const ProfilesRoute = "/debug/pprof"

// underReserved reports whether a route would hide routes of the server.
func underReserved(path string) bool {
	for _, taken := range []string{"/v2", "/console", "/models", "/apps"} {
		if path == taken || strings.HasPrefix(path, taken+"/") {
			return true
		}
	}
	return false
}

// Sources configures which videos clients may have the server read, and how videos are decoded.
type Sources struct {
	AllowPrivate bool   `yaml:"allow_private" help:"also read videos from loopback and private addresses that requests name"`
	HWAccel      string `yaml:"hwaccel" default:"none" words:"auto vaapi cuda none" help:"hardware that decodes video, of sources and of clients; auto takes what works; without any, and where it fails, ffmpeg decodes in software"`
}

// TLS configures the encryption of HTTP, WebSocket and gRPC. Browsers allow cameras only
// on pages with https or on localhost.
type TLS struct {
	Cert       string `yaml:"cert" help:"a PEM file with the certificate, which turns TLS on for http and grpc; read again when it changes"`
	Key        string `yaml:"key" help:"a PEM file with the certificate's key"`
	SelfSigned bool   `yaml:"self_signed" help:"turn TLS on with a certificate that the server makes, for cameras of phones on the same network"`
}

// On reports whether connections are encrypted.
func (t TLS) On() bool { return t.SelfSigned || t.Cert != "" }

// ONNX configures ONNX Runtime.
type ONNX struct {
	Library string `yaml:"library" unset:"that of the cache folder, then that of the system" help:"path of ONNX Runtime's shared library"`
}

// Repository configures the models that are in a folder, and those that requests send.
type Repository struct {
	Dir     string        `yaml:"model_repository" path:"file" help:"a folder with models, each as NAME/VERSION/model.onnx with an optional NAME/config.yaml or NAME/config.pbtxt"`
	Mode    string        `yaml:"model_control_mode" default:"none" words:"none explicit poll" help:"which models of model_repository are loaded: none loads all at the start; explicit those of load_model and those that requests name; poll all, and again when their files change"`
	Load    []string      `yaml:"load_model" example:"digits" help:"with model_control_mode explicit: models that are loaded at the start; * = all"`
	Exit    *bool         `yaml:"exit_on_error" default:"true" help:"a model of model_repository of which no version can be loaded ends the start; false: the others are served, and the index has the reason. With model_control_mode poll it never does"`
	Poll    time.Duration `yaml:"repository_poll" default:"15s" min:"10ms" help:"with model_control_mode poll: time from one look for changed files to the next; a change is taken when two looks have found the same files"`
	MaxSent int64         `yaml:"sent_models" default:"1GiB" min:"1" unit:"bytes" help:"most bytes of files of models that load requests have sent, in the folder for temporary files, as long as they are loaded"`
}

// The modes.
const (
	LoadAll      = "none"
	LoadExplicit = "explicit"
	LoadPoll     = "poll"
)

func (r Repository) validate() error {
	switch {
	case r.Dir == "" && r.Mode != LoadAll:
		return coded.Errorf(coded.InvalidArgument, "model_control_mode", "is %s, which needs model_repository", r.Mode)
	case len(r.Load) > 0 && r.Mode != LoadExplicit:
		return coded.Errorf(coded.InvalidArgument, "load_model", "needs model_control_mode explicit: the others load all models")
	}
	return nil
}

// Off as an address turns a listener off.
const Off = setting.Off

// table returns the settings of the server.
func (c *Config) table() *setting.Table {
	t := setting.Of("", c)
	t.AddParts(setting.Server, &c.Parts)
	return t
}

// WithDefaults returns c with the defaults of its zero fields, except those of models,
// whose defaults depend on the kind of worker.
func (c Config) WithDefaults() Config {
	c.Parts = slices.Clone(c.Parts)
	c.table().Fill()
	return c
}

// Validate returns all errors of the configuration, joined. Each is a *stream.Error with
// the path of the setting ("models[1].batching.max_size").
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := c.table().Check()
	bad := func(path, format string, args ...any) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, path, format, args...))
	}
	for _, p := range c.Parts {
		if p, ok := p.(interface{ Validate() error }); ok {
			errs = append(errs, p.Validate())
		}
	}
	errs = append(errs, c.Metrics.validate(), c.Repository.validate())
	switch t := c.TLS; {
	case t.SelfSigned && (t.Cert != "" || t.Key != ""):
		bad("tls.self_signed", "and tls.cert exclude each other")
	case t.Cert != "" && t.Key == "":
		bad("tls.key", "is missing: tls.cert needs its key")
	case t.Key != "" && t.Cert == "":
		bad("tls.cert", "is missing: tls.key needs its certificate")
	}
	return setting.Join(slices.Concat(errs, c.validateModels(), c.validateStreams())...)
}

func (c Config) validateModels() (errs []error) {
	first := map[string]int{}
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		for _, err := range setting.Split(m.Validate()) {
			errs = append(errs, coded.Within(at, err))
		}
		set, unset := m.WithDefaults(), workers.Config{}.WithDefaults()
		for _, s := range []struct {
			name  string
			isSet bool
		}{
			{"versions", !reflect.DeepEqual(set.Versions, unset.Versions)}, {"shadow", set.Shadow != unset.Shadow},
		} {
			if s.isSet {
				errs = append(errs, coded.Errorf(coded.InvalidArgument, at+"."+s.name, "has no effect here, where a model has one version: put the versions into a folder of model_repository, and the setting into the model's config.yaml there"))
			}
		}
		if j, twice := first[m.Name]; twice && m.Name != "" {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, at+".name", "%q is the name of models[%d] already", m.Name, j))
		} else {
			first[m.Name] = i
		}
	}
	if _, err := workers.LoadOrder(c.Models); err != nil {
		errs = append(errs, coded.Within("models", err))
	}
	return errs
}

// inDir returns path relative to the folder dir, "" = the working directory.
func inDir(dir, path string) string {
	if path == "" || dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
