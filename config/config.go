package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/workers"
)

// Config is everything that can be set. A zero field takes its default. The tags
// name the key of the file, which is a flag and a variable too.
type Config struct {
	HTTP        string        `yaml:"http" form:"address" default:"127.0.0.1:8000" help:"address of REST and WebSocket, or off"`
	GRPC        string        `yaml:"grpc" form:"address" default:"127.0.0.1:8001" help:"address of gRPC, or off"`
	Metrics     string        `yaml:"metrics" form:"address" unset:"at /metrics of http" help:"an address for the metrics alone, or off"`
	Hosts       []string      `yaml:"hosts" help:"names, beside its own, that requests may call the server by; * = any"`
	Origins     []string      `yaml:"origins" help:"web origins, beside its own, whose pages may use it; * = any"`
	Memory      Memory        `yaml:"memory"`
	Limits      ingest.Limits `yaml:"limits"`
	Log         Log           `yaml:"log"`
	StreamsFile string        `yaml:"streams_file" path:"file" help:"a file that keeps the streams added by requests, so that they start again with the server"`
	Drain       time.Duration `yaml:"drain" default:"10s" max:"1h" help:"how long frames in flight may take at the end"`
	Sources     Sources       `yaml:"sources"`
	TLS         TLS           `yaml:"tls"`
	ONNX        ONNX          `yaml:"onnx"`

	Models  []workers.Config // loaded at the start; entries of models in the file
	Streams []streams.Config // that the server watches itself; entries of streams in the file

	// Parts holds the settings of registered parts: pointers to their structs.
	Parts []any

	Version string // of the program; not in the file
	Clip    []byte // an MP4 that the console offers, nil = none; not in the file
}

// Memory bounds the memory that frames and results travel in, and that of
// batches, which take half of it at most.
type Memory struct {
	Budget int64 `yaml:"budget" default:"1GiB" min:"1MiB" unit:"bytes" help:"bytes that frames, results and batches may take"`
}

// Log says what is logged, and where.
type Log struct {
	Level  string `yaml:"level" default:"info" words:"debug info warn error" help:"the least that is logged"`
	Format string `yaml:"format" default:"text" words:"text json" help:"of each line"`
	File   string `yaml:"file" help:"a file to append to, beside standard error"`
}

// Sources is about videos that clients ask the server to pull.
type Sources struct {
	AllowPrivate bool `yaml:"allow_private" help:"pull videos from loopback and private addresses too"`
}

// TLS has HTTP, WebSocket and gRPC encrypted. Browsers give cameras only to pages
// that came by https, or from the machine itself.
type TLS struct {
	Cert       string `yaml:"cert" help:"a PEM file with the certificate of http and grpc, which then are encrypted; read again when it changes"`
	Key        string `yaml:"key" help:"a PEM file with its key"`
	SelfSigned bool   `yaml:"self_signed" help:"encrypt with a certificate of the server's own, for cameras of phones on the same network"`
}

// On says whether connections are encrypted.
func (t TLS) On() bool { return t.SelfSigned || t.Cert != "" }

// ONNX is about the library that ONNX models run on.
type ONNX struct {
	Library string `yaml:"library" unset:"the cache folder's, then the system's" help:"ONNX Runtime's shared library"`
}

// Off as an address keeps a protocol away.
const Off = setting.Off

// table is the settings of the server.
func (c *Config) table() *setting.Table {
	t := setting.Of("", c)
	t.AddParts(setting.Server, &c.Parts)
	return t
}

// WithDefaults returns c with its zero fields filled in, those of models left out:
// these depend on the kind of worker.
func (c Config) WithDefaults() Config {
	c.Parts = slices.Clone(c.Parts)
	c.table().Fill()
	return c
}

// Validate says everything that is wrong, each error with the path of the
// setting ("models[1].batching.max_size"). Errors are *stream.Error, joined.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := c.table().Check()
	bad := func(path, format string, args ...any) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, path, format, args...))
	}
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
		if j, twice := first[m.Name]; twice && m.Name != "" {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, at+".name", "%q is the name of models[%d] already", m.Name, j))
		} else {
			first[m.Name] = i
		}
	}
	return errs
}

// below is a path that starts from a folder, "" = the working directory.
func below(dir, path string) string {
	if path == "" || dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
