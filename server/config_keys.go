package server

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// key is one setting of a T: its path, what it means, and where it lies.
type key[T any] struct {
	path, doc string
	at        func(*T) any
}

// keys are the settings of the server. A new one is a field and a line here:
// file, flag and variable follow from it.
var keys = []key[Config]{
	{"http", "address of REST and WebSocket, or off", func(c *Config) any { return &c.HTTP }},
	{"grpc", "address of gRPC, or off", func(c *Config) any { return &c.GRPC }},
	{"metrics", "an address for the metrics alone, or off (at /metrics of http)", func(c *Config) any { return &c.Metrics }},
	{"hosts", "names, beside its own, that requests may call the server by; * = any", func(c *Config) any { return &c.Hosts }},
	{"origins", "web origins, beside its own, whose pages may use it; * = any", func(c *Config) any { return &c.Origins }},
	{"memory.budget", "bytes that frames, results and batches may take", func(c *Config) any { return &c.Memory.Budget }},
	{"limits.max_body", "bytes of an HTTP request's body", func(c *Config) any { return &c.Limits.MaxBody }},
	{"limits.max_message", "bytes of a WebSocket or gRPC message", func(c *Config) any { return &c.Limits.MaxMessage }},
	{"limits.max_pixels", "width times height of a picture", func(c *Config) any { return &c.Limits.MaxPixels }},
	{"limits.max_connections", "TCP connections at once, of all protocols together; more are closed at once", func(c *Config) any { return &c.Limits.MaxConnections }},
	{"limits.max_sessions", "WebSocket sessions at once", func(c *Config) any { return &c.Limits.MaxSessions }},
	{"limits.max_pulls", "videos pulled at once for WebSocket sessions", func(c *Config) any { return &c.Limits.MaxPulls }},
	{"limits.max_decoders", "videos of millrace.v1 clients (H.264, VP8, VP9, AV1) decoded at once, one ffmpeg each", func(c *Config) any { return &c.Limits.MaxDecoders }},
	{"limits.max_streams", "streams of the server's own at once", func(c *Config) any { return &c.Limits.MaxStreams }},
	{"limits.max_watchers", "clients that watch their results or pictures at once, and as many that watch health over gRPC", func(c *Config) any { return &c.Limits.MaxWatchers }},
	{"limits.outbox_messages", "replies that wait for one WebSocket client before it is closed as slow", func(c *Config) any { return &c.Limits.OutboxMessages }},
	{"limits.outbox_bytes", "bytes of them", func(c *Config) any { return &c.Limits.OutboxBytes }},
	{"limits.idle", "a WebSocket session without a message for so long is closed", func(c *Config) any { return &c.Limits.Idle }},
	{"limits.resume", "a millrace.v1 session lives on for so long without its connection", func(c *Config) any { return &c.Limits.Resume }},
	{"log.level", "debug, info, warn or error", func(c *Config) any { return &c.Log.Level }},
	{"log.format", "text or json", func(c *Config) any { return &c.Log.Format }},
	{"log.file", "a file to append to (standard error)", func(c *Config) any { return &c.Log.File }},
	{"streams_file", "a file that keeps the streams added by requests, so that they start again with the server", func(c *Config) any { return &c.StreamsFile }},
	{"drain", "how long frames in flight may take at the end", func(c *Config) any { return &c.Drain }},
	{"sources.allow_private", "pull videos from loopback and private addresses too", func(c *Config) any { return &c.Sources.AllowPrivate }},
	{"tls.cert", "a PEM file with the certificate of http and grpc, which then are encrypted; read again when it changes", func(c *Config) any { return &c.TLS.Cert }},
	{"tls.key", "a PEM file with its key", func(c *Config) any { return &c.TLS.Key }},
	{"tls.self_signed", "encrypt with a certificate of the server's own, for cameras of phones on the same network", func(c *Config) any { return &c.TLS.SelfSigned }},
	{"onnx.library", "ONNX Runtime's shared library (the cache folder's, then the system's)", func(c *Config) any { return &c.ONNX.Library }},
}

// Setting is one key of the configuration file that is also a flag and an
// environment variable.
type Setting struct {
	Path    string // "memory.budget"
	Flag    string // "memory-budget"
	Env     string // "MILLRACE_MEMORY_BUDGET"
	Doc     string
	Default string
	Switch  bool // true or false
	List    bool // the flag may be repeated; the variable separates by commas
}

// Settings lists the settings of the server, those of models left out: these
// come by AddModel.
func Settings() []Setting {
	d := Defaults()
	out := make([]Setting, len(keys))
	for i, k := range keys {
		p := k.at(&d)
		_, isSwitch := p.(*bool)
		_, isList := p.(*[]string)
		out[i] = Setting{
			Path: k.path, Flag: strings.NewReplacer(".", "-", "_", "-").Replace(k.path), Env: envName(k.path),
			Doc: k.doc, Switch: isSwitch, List: isList, Default: show(p),
		}
	}
	return out
}

// EnvModels is the variable that adds models: what --model takes, separated by
// semicolons.
const EnvModels = envPrefix + "MODELS"

// EnvConfig is the variable that names the configuration file.
const EnvConfig = envPrefix + "CONFIG"

const envPrefix = "MILLRACE_"

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func show(ptr any) string {
	switch p := ptr.(type) {
	case *string:
		return *p
	case *[]string:
		return strings.Join(*p, ",")
	case *bool:
		return fmt.Sprint(*p)
	case *int:
		return fmt.Sprint(*p)
	case *Size:
		return p.String()
	case *Duration:
		return p.String()
	}
	return ""
}

// Set sets one setting by its path. A list takes any number of values, the
// others one.
func (c *Config) Set(path string, values ...string) error {
	i := slices.IndexFunc(keys, func(k key[Config]) bool { return k.path == path })
	if i < 0 {
		return fault(path, "is no setting%s", suggest(path, paths(keys)))
	}
	vs := make([]scalar, len(values))
	for i, v := range values {
		vs[i] = scalar{text: v, quoted: true}
	}
	if err := assign(keys[i].at(c), vs); err != nil {
		return fault(path, "%w", err)
	}
	return nil
}

// Env lays the MILLRACE_ variables over the configuration. lookup is
// os.LookupEnv, or nil for that. Errors name the variable.
func (c *Config) Env(lookup func(string) (string, bool)) error {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	var errs []error
	for _, s := range Settings() {
		v, ok := lookup(s.Env)
		if !ok {
			continue
		}
		values := []string{v}
		if s.List {
			values = splitList(v, ',')
		}
		if err := c.Set(s.Path, values...); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Env, err))
		}
	}
	if v, ok := lookup(EnvModels); ok {
		if err := c.AddModels(splitList(v, ';')...); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", EnvModels, err))
		}
	}
	return errors.Join(errs...)
}

// StrayEnv returns the variables of environ ("NAME=value") that look like ours
// and are none, each with the nearest that is, if any.
func StrayEnv(environ []string) (stray []string) {
	known := []string{EnvModels, EnvConfig}
	for _, s := range Settings() {
		known = append(known, s.Env)
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			stray = append(stray, name+suggest(name, known))
		}
	}
	slices.Sort(stray)
	return stray
}

// AddModels adds models given as NAME=SOURCE[,key=value...], the form of
// --model. One whose name is taken replaces the model of that name, except
// another one of the same call.
func (c *Config) AddModels(specs ...string) error {
	seen := map[string]bool{}
	var errs []error
	for _, spec := range specs {
		m, err := ParseModel(spec)
		if err == nil && seen[m.Name] {
			err = fault("model", "%q is given twice", m.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[m.Name] = true
		c.put(m)
	}
	return errors.Join(errs...)
}

func (c *Config) put(m ModelConfig) {
	c.Models = slices.Clone(c.Models)
	if i := slices.IndexFunc(c.Models, func(o ModelConfig) bool { return o.Name == m.Name }); i >= 0 {
		c.Models[i] = m
		return
	}
	c.Models = append(c.Models, m)
}

func splitList(s string, sep rune) []string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == sep || r == '\n' })
	out := parts[:0]
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func paths[T any](ks []key[T]) []string {
	out := make([]string, len(ks))
	for i, k := range ks {
		out[i] = k.path
	}
	return out
}

// below returns the names that may stand in the section at prefix ("" = the
// top), sections included.
func below(all []string, prefix string) (names []string) {
	for _, p := range all {
		rest, ok := strings.CutPrefix(p, prefix)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}
