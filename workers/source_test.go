package workers_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name: "loader", New: func() workers.Worker {
			return &dense{}
		}, Loads: workers.HasSuffix(".abc"), Memory: batching.C,
	})
}

func TestKindOf(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	there, upper, other := file("x.abc"), file("X.ABC"), file("x.bin")
	for _, c := range []struct{ source, kind, load, err string }{
		{source: "identity", kind: "identity"},
		{source: there, kind: "loader", load: there},
		{source: upper, kind: "loader", load: upper},
		{source: "http://other/x.abc", kind: "loader", load: "http://other/x.abc"},
		{source: "", err: "source: is missing: want a kind of worker ("},
		{source: filepath.Join(dir, "none.abc"), err: "cannot be read"},
		{source: "http://other/x", err: "is an address, and this program has no worker"},
		{source: "x.onnx", err: "is an ONNX model, and this program has no worker"},
		{source: "X.PY", err: "is a Python service, and this program has no worker"},
		{source: dir, err: "is a folder: name the program in it"},
		{source: "none/", err: "is a folder: name the program in it"},
		{source: other, err: "cannot be loaded"},
		{source: "./none", err: "cannot be loaded"},
		{source: "dealy", err: `"dealy" is not a kind of worker (did you mean delay?)`},
	} {
		kind, load, err := workers.KindOf(c.source)
		if kind != c.kind || load != c.load || (err != nil) != (c.err != "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: kind %q loads %q, %v; want %+v", c.source, kind, load, err, c)
		}
	}
}

func TestKindsAreSortedAndRegisteredOnce(t *testing.T) {
	var names []string
	for _, k := range workers.Kinds() {
		names = append(names, k.Name)
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "identity") || !slices.Contains(names, "loader") {
		t.Errorf("%q", names)
	}
	for name, k := range map[string]workers.Kind{
		"a name that is taken": {Name: "identity", New: func() workers.Worker { return &dense{} }},
		"a kind without New":   {Name: "new to all"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was registered", name)
				}
			}()
			workers.Register(k)
		}()
	}
}

func TestUnknownParametersOfKinds(t *testing.T) {
	for _, c := range []struct{ kind, param, want string }{
		{"affine", "zzzzzzzz", "zzzzzzzz: is not a parameter of affine: it has none"},
		{"delay", "fixd", "fixd: is not a parameter of delay (did you mean fixed?)"},
		{"delay", "zzzzzzzz", "zzzzzzzz: is not a parameter of delay: it has busy, fixed, per_item, stateful"},
	} {
		k, _ := workers.Lookup(c.kind)
		if _, err := k.Decode(stream.Params{c.param: "1"}); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	k, _ := workers.Lookup("delay")
	if _, err := k.Decode(stream.Params{"aaaaaaaa": "1", "zzzzzzzz": "1"}); err == nil ||
		!strings.Contains(err.Error(), "aaaaaaaa: ") || !strings.Contains(err.Error(), "zzzzzzzz: ") {
		t.Errorf("not all mistakes are told: %v", err)
	}
	// The parameters of a load request are added to the parameters of the configuration, if any, and all mistakes of
	// the request are reported.
	for _, of := range []stream.Params{nil, {"per_item": "2ms"}} {
		out, _, _, err := workers.Overlay(workers.Config{Name: "m", Kind: "delay", Params: of},
			stream.Params{"fixed": "1ms"})
		if err != nil || out.Params["fixed"] != "1ms" || len(out.Params) != 1+len(of) || len(of) > 1 {
			t.Errorf("over %v: %v, %v", of, out.Params, err)
		}
	}
	_, _, _, err := workers.Overlay(workers.Config{Name: "m", Kind: "identity"},
		stream.Params{"aaaaaaaa": 1, "zzzzzzzz": 1})
	if err == nil || !strings.Contains(err.Error(), "aaaaaaaa: ") || !strings.Contains(err.Error(), "zzzzzzzz: ") {
		t.Errorf("%v", err)
	}
}

func TestDefaultsOfKindAndMemory(t *testing.T) {
	for _, c := range []struct {
		name         string
		in           workers.Config
		kind, source string
		memory       batching.Backend
	}{
		{"the source names a kind", workers.Config{Source: "identity"}, "identity", "", batching.Heap},
		{"the source is loaded", workers.Config{Source: "http://a/x.abc"}, "loader", "http://a/x.abc", batching.C},
		{"the kind is set", workers.Config{Kind: "delay", Source: "identity"}, "delay", "identity", batching.Heap},
		{"the source is unknown", workers.Config{Source: "nonsense"}, "", "nonsense", batching.Heap},
		{"the kind's own memory", workers.Config{Kind: "loader"}, "loader", "", batching.C},
		{"other memory than the kind's", workers.Config{Kind: "loader",
			Batching: workers.Batching{Memory: batching.Heap}}, "loader", "", batching.Heap},
		{"memory of a kind without its own", workers.Config{Kind: "identity",
			Batching: workers.Batching{Memory: batching.C}}, "identity", "", batching.C},
		{"memory of an unknown kind", workers.Config{Kind: "nonsense", Batching: workers.Batching{Memory: batching.C}},
			"nonsense", "", batching.C},
	} {
		if got := c.in.WithDefaults(); got.Kind != c.kind || got.Source != c.source || got.Batching.Memory != c.memory {
			t.Errorf("%s: kind %q, source %q, memory %q", c.name, got.Kind, got.Source, got.Batching.Memory)
		}
	}
	for want, c := range map[string]workers.Config{
		"source: \"nonsense\" is not a kind of worker: see `millrace models --kinds`": {Name: "m", Kind: "nonsense"},
		"source: \"./nonsense\" cannot be loaded: want a kind of worker (": {Name: "m",
			Source: "./nonsense"},
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one error %s", err, want)
		}
	}
}

// Two configurations are the same whatever their names and instances, and the order of
// their parts.
func TestSame(t *testing.T) {
	a, b := &batching.SoftSettings{MaxDelay: 1}, &batching.DeadlineSettings{Slack: 2}
	base := workers.Config{Name: "m", Kind: "delay", Instances: 2, Params: stream.Params{"fixed": "1ms"},
		Parts: []any{a, b}}
	for _, c := range []struct {
		name   string
		change func(c *workers.Config)
		same   bool
	}{
		{"nothing", func(*workers.Config) {}, true},
		{"the name", func(c *workers.Config) { c.Name = "n" }, true},
		{"the instances", func(c *workers.Config) { c.Instances = 3 }, true},
		{"the order of parts", func(c *workers.Config) { c.Parts = []any{b, a} }, true},
		{"the kind", func(c *workers.Config) { c.Kind = "identity" }, false},
		{"a parameter", func(c *workers.Config) { c.Params = stream.Params{"fixed": "2ms"} }, false},
		{"no parameter", func(c *workers.Config) { c.Params = nil }, false},
		{"a part", func(c *workers.Config) { c.Parts = []any{a, &batching.DeadlineSettings{Slack: 3}} }, false},
		{"a part less", func(c *workers.Config) { c.Parts = []any{a} }, false},
		{"a part more", func(c *workers.Config) { c.Parts = []any{a, b, &batching.SoftSettings{MaxDelay: 5}} }, false},
	} {
		d := base
		c.change(&d)
		if base.CanShareGroup(d) != c.same || d.CanShareGroup(base) != c.same {
			t.Errorf("%s: want the same: %v", c.name, c.same)
		}
	}
}
