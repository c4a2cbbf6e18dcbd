package web_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imported matches the relative paths that a TypeScript module imports or exports from.
var imported = regexp.MustCompile(`(?m)(?:^import|\bfrom|\bimport\()\s*['"](\.[^'"]+)['"]`)

// circle returns modules of TypeScript that import each other, the first one again at the end, or nil. The sources are
// by their slash-separated paths.
func circle(sources map[string]string) []string {
	const entered, left = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(name string) []string
	visit = func(name string) []string {
		way = append(way, name)
		defer func() { way = way[:len(way)-1] }()
		state[name] = entered
		for _, m := range imported.FindAllStringSubmatch(sources[name], -1) {
			base := strings.TrimSuffix(path.Join(path.Dir(name), m[1]), ".js")
			for _, next := range []string{base + ".ts", base + ".tsx"} {
				_, exists := sources[next]
				switch {
				case !exists || state[next] == left:
				case state[next] == entered:
					return append(slices.Clone(way[slices.Index(way, next):]), next)
				default:
					if found := visit(next); found != nil {
						return found
					}
				}
			}
		}
		state[name] = left
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if state[name] == 0 {
			if found := visit(name); found != nil {
				return found
			}
		}
	}
	return nil
}

// TestImports finds modules of the client and of the console that import each other.
func TestImports(t *testing.T) {
	for dir, least := range map[string]int{"client/src": 20, "console/src": 20} {
		sources := map[string]string{}
		links := 0
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasPrefix(path.Ext(name), ".ts") {
				return err
			}
			text, err := fs.ReadFile(os.DirFS(dir), name)
			sources[name] = string(text)
			links += len(imported.FindAllString(string(text), -1))
			return err
		})
		if err != nil || len(sources) < least || links < 2*least {
			t.Fatalf("%s: %d modules with %d imports, %v", dir, len(sources), links, err)
		}
		if found := circle(sources); found != nil {
			t.Errorf("%s: modules import each other: %s", dir, strings.Join(found, " -> "))
		}
	}
}

// TestCircle finds circles in small sources.
func TestCircle(t *testing.T) {
	for want, sources := range map[string]map[string]string{
		"": {
			"a.ts": "import {b} from './b.js';\nimport {c} from './live/c';",
			"b.ts": "export * from './live/c.js';\nimport './style.css';", "live/c.tsx": "import x from 'a';",
		},
		"a.ts a.ts":            {"a.ts": "import './a.js';"},
		"b.ts live/c.tsx b.ts": {"a.ts": "import './b';", "b.ts": "import './live/c';", "live/c.tsx": "import('../b')"},
		"a.ts b.ts c.ts a.ts": {
			"a.ts": "import {\n  b,\n} from './b.js';", "b.ts": "export {c} from \"./c\"",
			"c.ts": "import type {a} from './a';",
		},
		"a.ts b.ts a.ts": {"a.ts": "import type {b} from './b.js';", "b.ts": "import type {a} from './a.js';"},
	} {
		if got := strings.Join(circle(sources), " "); got != want {
			t.Errorf("circle %q, want %q", got, want)
		}
	}
}
