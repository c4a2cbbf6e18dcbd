package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/workers"
)

// Setting describes a setting. A server setting is a key in the file, a flag and a variable; a setting of a model, a
// server stream or a kind of worker is only a key.
type Setting struct {
	Path     string `json:"path"`           // "memory.budget"
	Flag     string `json:"flag,omitempty"` // "memory-budget"
	Env      string `json:"env,omitempty"`  // "MILLRACE_MEMORY_BUDGET"
	Doc      string `json:"doc"`
	Default  string `json:"default,omitempty"`  // in the notation of the file; "" = none
	Unset    string `json:"unset,omitempty"`    // what leaving it out means, in words
	Range    string `json:"range,omitempty"`    // the allowed values
	Example  string `json:"example,omitempty"`  // an allowed value, if Range does not give one
	Request  string `json:"request,omitempty"`  // "any", or the largest value that a request may set; "" = a request may not set it
	Short    string `json:"short,omitempty"`    // other names that a request that loads a model may use, separated by spaces
	Switch   bool   `json:"switch,omitempty"`   // true or false
	Secret   bool   `json:"secret,omitempty"`   // the variable is removed from the environment once it was read, so that no child process has it
	Advanced bool   `json:"advanced,omitempty"` // most users never set it
	List     bool   `json:"list,omitempty"`     // any number of values: the flag may be repeated; in the variable, commas separate them
}

// Meaning returns the description, with the limit for requests.
func (s Setting) Meaning() string {
	if s.Request == "" || s.Request == "any" {
		return s.Doc
	}
	return s.Doc + "; a request may ask for " + s.Request
}

// Text returns the whole description of the setting in one line.
func (s Setting) Text() string {
	text := s.Meaning()
	if s.Range != "" {
		text += ": " + s.Range
	}
	switch {
	case s.Default != "":
		text += " [" + s.Default + "]"
	case s.Unset != "":
		text += " [" + s.Unset + "]"
	}
	return text
}

// describe lists the settings of a table, grouped by section.
func describe(t *setting.Table) []Setting {
	out := make([]Setting, 0, len(t.Fields()))
	first := map[string]int{} // index of each section's first setting
	for i, f := range t.Fields() {
		section, _, _ := strings.Cut(f.Path, ".")
		if _, known := first[section]; !known {
			first[section] = i
		}
		out = append(out, Setting{
			Path: f.Path, Doc: f.Help, Default: f.Default, Unset: f.Unset, Range: f.Range(), Example: f.Example,
			Request: f.Request, Short: strings.Join(f.Short, " "), Switch: f.IsBool(), Secret: f.Secret,
			Advanced: f.Advanced, List: f.IsList(),
		})
	}
	slices.SortStableFunc(out, func(a, b Setting) int {
		x, _, _ := strings.Cut(a.Path, ".")
		y, _, _ := strings.Cut(b.Path, ".")
		return first[x] - first[y]
	})
	for _, n := range t.Names() {
		out = append(out, Setting{Path: n.Path + ".NAME", Doc: n.Help, Unset: n.Unset, Advanced: n.Advanced})
	}
	for _, l := range t.Lists() {
		out = append(out, Setting{Path: l.Path + "[]", Doc: l.Help, Advanced: l.Advanced()})
		for _, s := range describe(l.Describe()) {
			s.Path = l.Path + "[]." + s.Path
			out = append(out, s)
		}
	}
	return out
}

// Settings lists the settings of the server, without the settings of models and streams.
func Settings() []Setting {
	out := describe(new(Config).table())
	for i, s := range out {
		out[i].Flag = strings.NewReplacer(".", "-", "_", "-").Replace(s.Path)
		out[i].Env = envName(s.Path)
	}
	return out
}

// ModelSettings lists the settings of a model: keys of an entry under models in
// the file, and of --model.
func ModelSettings() []Setting { return describe(new(workers.Config).Table()) }

// KindSettings lists the parameters of a kind of worker, also keys of a model.
func KindSettings(k workers.Kind) []Setting { return describe(k.Table()) }

// EnvModels is the variable for additional models in the notation of --model, separated by semicolons.
const EnvModels = envPrefix + "MODELS"

// EnvConfig is the environment variable with the path of the configuration file.
const EnvConfig = envPrefix + "CONFIG"

// Variables for commands that connect to a running server: the server's address and an API key. These variables are
// not settings.
const (
	EnvAddr  = envPrefix + "ADDR"
	EnvToken = envPrefix + "TOKEN"
	// EnvGitToken is the token for repositories of applications, see source.EnvToken.
	EnvGitToken = envPrefix + "GIT_TOKEN"
)

const envPrefix = "MILLRACE_"

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// Set sets one setting by its path. A list takes any number of values, any other setting takes one value.
func (c *Config) Set(path string, values ...string) error { return c.table().Set(path, values...) }

// Env applies the MILLRACE_ variables to the configuration. lookup = nil means
// os.LookupEnv. Errors name the variable.
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
	return setting.Join(errs...)
}

// SecretEnv returns the names of the variables that may hold secrets: variables of settings, and variables with
// headers for exporters of OpenTelemetry.
func SecretEnv() []string {
	out := []string{EnvToken, EnvGitToken, "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}
	for _, s := range Settings() {
		if s.Secret {
			out = append(out, s.Env)
		}
	}
	return out
}

// WithoutSecrets removes the variables that may hold secrets of the server from an environment.
func WithoutSecrets(environ []string) []string {
	names := SecretEnv()
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}

// UnknownEnv returns the variables of environ ("NAME=value") that begin with MILLRACE_ and are no settings, each with
// a suggestion if a setting has a similar name.
func UnknownEnv(environ []string) (unknown []string) {
	known := []string{EnvModels, EnvConfig, EnvAddr, EnvToken, EnvGitToken}
	for _, s := range Settings() {
		known = append(known, s.Env)
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name+setting.Suggest(name, known))
		}
	}
	slices.Sort(unknown)
	return unknown
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
