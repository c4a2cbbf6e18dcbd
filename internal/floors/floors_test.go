package floors

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTree checks the repository against the rules.
func TestTree(t *testing.T) {
	tree, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	// A loader that finds nothing would let every test pass.
	for _, must := range []string{"internal/floors/floors_test.go", "internal/floors/rules_test.go"} {
		if _, ok := tree[must]; !ok {
			t.Fatalf("the loader did not see %s, only %d files", must, len(tree))
		}
	}
	for _, fault := range faults(tree) {
		t.Error(fault)
	}
}

// TestFaults breaks each rule once, next to a similar case that is allowed.
func TestFaults(t *testing.T) {
	imports := func(from string, to ...string) map[string]file {
		dir := from[strings.LastIndex(from, "/")+1:]
		return map[string]file{from + "/a.go": {pkg: dir, doc: "Package " + dir + " is here.\n", lines: 10,
			imports: to}}
	}
	one := func(path string, f file) map[string]file { return map[string]file{path: f} }
	const doc = "Package stream is here.\n"

	for _, c := range []struct {
		name string
		tree map[string]file
		want string // a part of the only fault; "" for none
	}{
		{"down", imports("server", "millrace/stream", "millrace/ingest/rest", "fmt"), ""},
		{"up", imports("stream", "millrace/server"), "stream (floor 1) imports server (floor 9)"},
		{"up from a folder below", imports("internal/codec", "millrace/stream"),
			"internal/codec (floor 0) imports stream (floor 1)"},
		{"same folder", imports("internal/codec", "millrace/internal/video"), ""},
		{"a folder with a floor of its own", imports("internal/buf", "millrace/stream/coded"), ""},
		{"and from the floor above it", imports("stream", "millrace/stream/coded"), ""},
		{"nothing is below it", imports("stream/coded", "millrace/internal/buf"),
			"stream/coded (floor -1) imports internal/buf (floor 0)"},
		{"nor is the rest of its folder", imports("stream/coded", "millrace/stream"),
			"stream/coded (floor -1) imports stream (floor 1)"},
		{"siblings", imports("workers/onnx", "millrace/ingest"), "workers/onnx (floor 3) imports ingest (floor 3)"},
		{"siblings the other way", imports("ingest/rest", "millrace/workers"),
			"ingest/rest (floor 3) imports workers (floor 3)"},
		{"same floor", imports("client", "millrace/batching"), "client (floor 2) imports batching (floor 2)"},
		{"example embeds the server", imports("examples/embed", "millrace/server", "millrace/client"), ""},
		{"example imports the command", imports("examples/embed", "millrace/cmd/millrace"),
			"imports cmd/millrace (floor 11)"},
		{"no floor", imports("helpers", "fmt"), "helpers has no floor"},
		{"imports what has no floor", imports("server", "millrace/helpers"), "helpers has no floor"},
		{"prefix is not the module", imports("stream", "millrace.example/server"), ""},

		{"adapter and its parent", imports("ingest/rest", "millrace/ingest"), ""},
		{"adapter and what all share", imports("ingest/rest", "millrace/ingest/sources"), ""},
		{"adapter and access", imports("ingest/rest", "millrace/ingest/access"), ""},
		{"access and the gate", imports("ingest/access", "millrace/ingest"),
			"ingest/access (floor 2) imports ingest (floor 3)"},
		{"adapter and its own part", imports("ingest/rest", "millrace/ingest/rest/openapi"), ""},
		{"adapter and adapter", imports("ingest/rest", "millrace/ingest/ws"), "ingest/rest imports ingest/ws"},
		{"part of an adapter and adapter", imports("ingest/rest/openapi", "millrace/ingest/ws"),
			"ingest/rest/openapi imports ingest/ws"},
		{"what all share and adapter", imports("ingest/sources", "millrace/ingest/ws"),
			"ingest/sources imports ingest/ws"},
		{"worker kind and worker kind", imports("workers/onnx", "millrace/workers/python"),
			"workers/onnx imports workers/python"},

		{"adapter and its layers", imports("ingest/ws", "millrace/ingest/ws/v1", "millrace/ingest/ws/conn"), ""},
		{"layer down", imports("ingest/ws/plain", "millrace/ingest/ws/conn", "millrace/ingest"), ""},
		{"layer up", imports("ingest/ws/conn", "millrace/ingest/ws/v1"),
			"ingest/ws/conn (layer 0 of ingest/ws) imports ingest/ws/v1 (layer 2)"},
		{"layer and the room above", imports("ingest/ws/conn", "millrace/ingest/ws"), "imports ingest/ws (layer 3)"},
		{"same layer", imports("ingest/ws/plain", "millrace/ingest/ws/v1"),
			"ingest/ws/plain (layer 2 of ingest/ws) imports ingest/ws/v1 (layer 2)"},
		{"no layer", imports("ingest/ws/extra", "millrace/ingest/ws/conn"), "ingest/ws/extra has no layer"},

		{"otel in tracing", imports("tracing", "go.opentelemetry.io/otel",
			"github.com/prometheus/client_golang/prometheus"), ""},
		{"otel elsewhere", imports("batching", "go.opentelemetry.io/otel"),
			"only tracing imports go.opentelemetry.io/otel"},
		{"prometheus elsewhere", imports("server", "github.com/prometheus/client_golang/prometheus"),
			"only tracing imports github.com/prometheus"},
		{"prometheus in the program that reads metrics", imports("tools/soak", "github.com/prometheus/common/expfmt"),
			""},
		{"prometheus in the command", imports("cmd/millrace", "github.com/prometheus/common/expfmt"),
			"only tracing imports github.com/prometheus"},

		{"tests import what they like", one("stream/a_test.go", file{pkg: "stream_test", doc: doc, test: true,
			imports: []string{"millrace/server", "github.com/prometheus/common/expfmt"}}), ""},

		{"no package comment", one("stream/a.go", file{pkg: "stream"}), "stream has no package comment"},
		{"comment of another form", one("stream/a.go", file{pkg: "stream", doc: "Words."}),
			"stream has no package comment"},
		{"comment on a test does not count", map[string]file{
			"stream/a.go":      {pkg: "stream"},
			"stream/a_test.go": {pkg: "stream", doc: doc, test: true}}, "stream has no package comment"},
		{"comment in one file of two", map[string]file{"stream/a.go": {pkg: "stream"},
			"stream/b.go": {pkg: "stream", doc: doc}}, ""},
		{"tests only, with a comment", one("internal/x/a_test.go", file{pkg: "x", doc: "Package x is here.",
			test: true}), ""},
		{"command", one("cmd/millrace/main.go", file{pkg: "main", doc: "Command millrace serves."}), ""},
		{"command without a comment", one("cmd/millrace/main.go", file{pkg: "main"}),
			"cmd/millrace has no package comment"},

		{"800 lines", one("stream/a.go", file{pkg: "stream", doc: doc, lines: 800}), ""},
		{"801 lines", one("stream/a.go", file{pkg: "stream", doc: doc, lines: 801}), "stream/a.go has 801 lines"},
		{"long script", one("web/console.js", file{lines: 801}), "web/console.js has 801 lines"},
		{"long test", one("stream/a_test.go", file{pkg: "stream", doc: doc, lines: 2000, test: true}), ""},
		{"long generated file", one("stream/a.go", file{pkg: "stream", doc: doc, lines: 2000, generated: true}), ""},

		{"the table of systems", imports("compat", "millrace/compat/ssf", "millrace/compat/style"), ""},
		{"system and the style", imports("compat/ssf", "millrace/compat/style", "millrace/config"), ""},
		{"system and system", imports("compat/ssf", "millrace/compat/mosec"), "compat/ssf imports compat/mosec"},
		{"system and the server", imports("compat/ssf", "millrace/server"),
			"compat/ssf (floor 7) imports server (floor 9)"},
		{"core and the style", imports("ingest/apps", "millrace/compat/style"),
			"ingest/apps (floor 3) imports compat/style (floor 6)"},
		{"system outside compat", one("stream/a.go", file{pkg: "stream", doc: doc, system: "ssf"}),
			"stream/a.go names ssf"},
		{"system in Python outside compat", one("python/millrace/a.py", file{system: "mosec"}),
			"python/millrace/a.py names mosec"},
		{"system of clients outside compat", one("server/a.go", file{pkg: "server", doc: "Package server is here.",
			system: "inference_server"}), "server/a.go names inference_server"},
		{"system in compat", one("python/compat/a.py", file{system: "mosec"}), ""},
		{"system in a test", one("stream/a_test.go", file{pkg: "stream", doc: doc, system: "ssf", test: true}), ""},

		{"synonym", one("stream/a.go", file{pkg: "stream", doc: doc, types: []string{"Frame", "Packet"}}),
			"what Packet names is called Frame here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := faults(c.tree)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("allowed, but faulted: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %q, want one fault with %q", got, c.want)
			}
		})
	}
}

// TestLoad checks the files that the loader reads from a tree and skips.
func TestLoad(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"go.mod":        "module millrace\n",
		"stream/doc.go": "// Package stream is here.\npackage stream\n",
		"stream/tagged.go": "//go:build never\n\npackage stream\n\nimport x \"millrace/server\"\n\ntype " +
			"Packet struct{}\n\ntype small struct{}\n\nvar _ x.T\n",
		"stream/a_test.go":        "package stream_test\n",
		"stream/gen.go":           "// Code generated by hand. DO NOT EDIT.\n\npackage stream\n",
		"stream/testdata/a.go":    "not Go",
		"web/app.js":              "one\ntwo\n",
		"web/node_modules/x/a.go": "not Go",
		"web/icon.png":            "bytes",
		"out/a.go":                "not Go",
		".hidden/a.go":            "not Go",
		"examples/own/go.mod":     "module own\n",
		"examples/own/a.go":       "not Go",
	})
	tree, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stream/a_test.go", "stream/doc.go", "stream/gen.go", "stream/tagged.go", "web/app.js"}
	if got := slices.Sorted(maps.Keys(tree)); !slices.Equal(got, want) {
		t.Fatalf("loaded %q, want %q", got, want)
	}
	if f := tree["stream/tagged.go"]; !slices.Equal(f.imports, []string{"millrace/server"}) ||
		!slices.Equal(f.types, []string{"Packet"}) || f.lines != 11 || f.test || f.generated {
		t.Errorf("tagged.go read as %+v", f)
	}
	if f := tree["stream/doc.go"]; f.doc != "Package stream is here.\n" || f.pkg != "stream" {
		t.Errorf("doc.go read as %+v", f)
	}
	if !tree["stream/a_test.go"].test || !tree["stream/gen.go"].generated || tree["web/app.js"].lines != 2 {
		t.Errorf("read as %+v", tree)
	}

	write(t, root, map[string]string{"stream/broken.go": "package stream\nfunc {"})
	if _, err := load(root); err == nil || !strings.Contains(err.Error(), "broken.go") {
		t.Errorf("a file that does not parse gave %v", err)
	}
}
