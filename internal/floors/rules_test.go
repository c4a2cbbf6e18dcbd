package floors

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const module = "millrace"

// maxLines is the greatest length of a file.
const maxLines = 800

// floor of each top-level folder, and of folders below with a separate floor. Imports go from a higher floor to a
// lower floor.
var floor = map[string]int{
	"stream/coded": -1, // the error returned by every package
	"stream/buf":   -1, // leased memory
	"internal":     0,
	"stream":       1, "python": 1, "apps/image": 1,
	"batching": 2, "client": 2, "ingest/access": 2, // permissions, below the adapters and the gate
	"tasks":        2, // durable tasks, below their adapter
	"tasks/remote": 3, // tasks of a server elsewhere
	"workers":      3, "ingest": 3,
	"tracing": 4, "web": 4, "config": 4,
	"apps":          5, // applications and models from repositories
	"compat/style":  6,
	"compat/octoai": 7, "compat/mosec": 7, "compat/ssf": 7, // the systems whose programs are served
	"compat/inferenceserver": 7, // a system whose clients are served
	"compat":                 8, // the table of them
	"server":                 9,
	"internal/servertest":    10, // servers of tests
	"internal/walkertest":    4,  // a model of tests
	"examples":               10,
	"cmd":                    11, // the demo shows an example
	"tools":                  12, // a separate module
}

// plugins are folders with independent subfolders: a subfolder never imports a sibling, and can be added or removed
// alone. The value lists the shared subfolders, which every plugin may import.
var plugins = map[string][]string{
	"compat":  {"style"},
	"ingest":  {"sources", "sinks", "decoders", "clips", "frames", "history", "inference", "shm"},
	"workers": {"results", "process", "remote"},
}

// layers are the folders of rooms with floors of their own, from the lowest up; the room itself is above all layers.
// Folders of the same layer do not import each other.
var layers = map[string][][]string{
	"ingest/ws": {{"conn"}, {"query"}, {"plain", "v1"}},
}

// scraper may import telemetry, too: the soak tool is not part of the server, and reads the server's metrics like
// Prometheus.
const scraper = "tools/soak"

// systems finds the names of other systems whose programs are served. Outside of the folders compat, only tests and
// examples name them.
var systems = regexp.MustCompile(`(?i)octoai|mosec|\bssf|Simple Server Framework|\bInferenceServer\b|inference_server`)

// mayNameSystems are the folders whose files may name other systems.
var mayNameSystems = []string{"compat/", "python/compat/", "python/tests/", "examples/migrating/"}

// telemetry may be imported by tracing alone; the other packages have hooks.
var telemetry = []string{
	"go.opentelemetry.io/",
	"github.com/prometheus/",
	"github.com/uber/jaeger-client-go",
	"github.com/opentracing/",
}

// synonyms are exported type names that repeat an existing name.
var synonyms = map[string]string{
	"Packet":       "Frame",
	"Job":          "Request",
	"Prediction":   "Result",
	"Publisher":    "Sink",
	"Emitter":      "Sink",
	"ErrorCode":    "Code",
	"DropReason":   "Reason",
	"Dispatcher":   "Batcher",
	"Scheduler":    "Batcher",
	"Minibatch":    "Batch",
	"Executor":     "Worker",
	"Runner":       "Worker",
	"WorkerPool":   "Group",
	"Orchestrator": "Manager",
}

// file is the information about a source file used by the rules. For a file that is not Go, only lines and generated
// are set.
type file struct {
	pkg       string   // name in the package clause
	doc       string   // package comment, "" for none
	imports   []string // import paths
	types     []string // exported types declared
	system    string   // the first name of another system in a file of Go or Python, "" for none
	lines     int
	test      bool // ends in _test.go
	generated bool // carries Go's mark for generated code
}

// faults returns one line for each rule broken by the tree (slash-separated path to file), sorted and without
// duplicates.
func faults(tree map[string]file) []string {
	seen := map[string]bool{}
	for name, f := range tree {
		if f.lines > maxLines && !f.test && !f.generated {
			seen[fmt.Sprintf("%s has %d lines: split it, %d is the limit", name, f.lines, maxLines)] = true
		}
		if f.system != "" && !f.test && !slices.ContainsFunc(mayNameSystems, func(dir string) bool {
			return strings.HasPrefix(name, dir)
		}) {
			seen[fmt.Sprintf("%s names %s: what another system needs stands in compat or python/compat", name,
				f.system)] = true
		}
		if f.test || !strings.HasSuffix(name, ".go") {
			continue
		}
		for _, typ := range f.types {
			if word, ok := synonyms[typ]; ok {
				seen[fmt.Sprintf("%s: what %s names is called %s here", name, typ, word)] = true
			}
		}
		dir := path.Dir(name)
		if why := importFault(dir, module); why != "" {
			seen[why] = true
		}
		for _, to := range f.imports {
			if why := importFault(dir, to); why != "" {
				seen[why] = true
			}
		}
	}
	for _, dir := range undocumented(tree) {
		seen[dir+` has no package comment: say what it owns and what it must not know ("Package name ...")`] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// importFault says why the package in dir must not import the path to, or "".
// The module's own path asks only whether dir itself has a floor.
func importFault(dir, to string) string {
	from, fromSub := split(dir)
	fromFloor, ok := floorOf(dir)
	if !ok {
		return from + " has no floor: give it one in internal/floors/rules_test.go, or move it"
	}
	for _, prefix := range telemetry {
		if strings.HasPrefix(to, prefix) && from != "tracing" && dir != scraper {
			return fmt.Sprintf("%s: only tracing imports %s; offer a hook instead", dir, to)
		}
	}
	target, own := strings.CutPrefix(to, module+"/")
	if !own {
		return ""
	}
	top, sub := split(target)
	topFloor, ok := floorOf(target)
	if !ok {
		return top + " has no floor: give it one in internal/floors/rules_test.go, or move it"
	}
	if top != from || topFloor != fromFloor {
		if topFloor >= fromFloor {
			return fmt.Sprintf("%s (floor %d) imports %s (floor %d): imports go down only", dir, fromFloor, target,
				topFloor)
		}
		return ""
	}
	for room := range layers {
		if why := layerFault(room, dir, target); why != "" {
			return why
		}
	}
	if shared, ok := plugins[top]; ok && sub != "" && sub != fromSub && !slices.Contains(shared, sub) {
		return fmt.Sprintf("%s imports %s: the folders in %s stand alone; move what they share down", dir, target, top)
	}
	return ""
}

// floorOf returns the floor of a folder: its own, or the floor of its top-level folder.
func floorOf(dir string) (int, bool) {
	top, sub := split(dir)
	if f, ok := floor[top+"/"+sub]; ok {
		return f, true
	}
	f, ok := floor[top]
	return f, ok
}

// layerFault says why a folder of a room with layers must not import another, or "".
func layerFault(room, from, to string) string {
	fromLayer, inside := layerOf(room, from)
	toLayer, target := layerOf(room, to)
	switch {
	case !inside || !target || from == to:
		return ""
	case fromLayer < 0:
		return from + " has no layer: give it one in internal/floors/rules_test.go"
	case toLayer >= fromLayer:
		return fmt.Sprintf("%s (layer %d of %s) imports %s (layer %d): imports go down only", from, fromLayer, room,
			to, toLayer)
	}
	return ""
}

// layerOf returns the layer of a folder of room, -1 for a folder without a layer, and whether dir is in room at all.
func layerOf(room, dir string) (layer int, inside bool) {
	if dir == room {
		return len(layers[room]), true
	}
	sub, inside := strings.CutPrefix(dir, room+"/")
	if !inside {
		return 0, false
	}
	return slices.IndexFunc(layers[room], func(folders []string) bool { return slices.Contains(folders, sub) }), true
}

// split returns the first two elements of a slash-separated path.
func split(dir string) (top, sub string) {
	top, rest, _ := strings.Cut(dir, "/")
	sub, _, _ = strings.Cut(rest, "/")
	return top, sub
}

// undocumented returns the folders whose package has no comment of Go's form. A comment in a test file counts only in
// folders with nothing but tests.
func undocumented(tree map[string]file) []string {
	code := map[string]bool{} // folders with Go files other than tests
	for name, f := range tree {
		if strings.HasSuffix(name, ".go") && !f.test {
			code[path.Dir(name)] = true
		}
	}
	has := map[string]bool{}
	for name, f := range tree {
		dir := path.Dir(name)
		if !strings.HasSuffix(name, ".go") || f.test && code[dir] {
			continue
		}
		name := strings.TrimSuffix(f.pkg, "_test")
		has[dir] = has[dir] || f.doc != "" && (f.pkg == "main" || strings.HasPrefix(f.doc, "Package "+name+" "))
	}
	var bare []string
	for dir, ok := range has {
		if !ok {
			bare = append(bare, dir)
		}
	}
	return bare
}
