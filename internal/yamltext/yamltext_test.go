package yamltext

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allocated returns the bytes allocated by f.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func bombs() map[string]string {
	const n = 30 << 10
	var indented strings.Builder
	for i := range 200 {
		fmt.Fprintf(&indented, "%sa:\n", strings.Repeat(" ", i))
	}
	lists := ""
	for i := range 200 {
		lists += strings.Repeat(" ", i) + "-\n"
	}
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	return map[string]string{
		"brackets":         strings.Repeat("[", n),
		"closed brackets":  strings.Repeat("[", n/2) + strings.Repeat("]", n/2),
		"braces":           strings.Repeat("{a: ", n/4),
		"dashes":           strings.Repeat("- ", n/2),
		"questions":        strings.Repeat("? ", n/2),
		"keys in lists":    "a:\n" + strings.Repeat("- ", n/2) + "b: c",
		"mixed":            strings.Repeat("- [{a: ", n/7),
		"indented":         indented.String(),
		"indented lists":   lists,
		"tags":             "a: " + strings.Repeat("!t ", n/3) + "b",
		"anchors":          "a: " + strings.Repeat("&t ", n/3) + "b",
		"pairs in a list":  "[" + strings.Repeat("a: ", n/3) + "]",
		"laughs":           laughs,
		"self":             "a: &a [*a]",
		"many values":      "[" + strings.Repeat("a,", 300000) + "]",
		"too many bytes":   "a: " + strings.Repeat("x", 2<<20),
		"zero bytes":       "a: b\n\x00\x00\x00",
		"brackets in text": "a: 'x'\nb: [" + strings.Repeat("[", n) + "\n",
		"quoted key":       strings.Repeat("{'a': ", n/6),
		"after a document": "a: b\n---\n" + strings.Repeat("[", n),
	}
}

func TestBombs(t *testing.T) {
	for name, text := range bombs() {
		t.Run(name, func(t *testing.T) {
			var v any
			var err error
			if n := allocated(func() { err = Decode([]byte(text), MaxSettings, &v, false) }); n > 160<<20 {
				t.Errorf("%d bytes of text take %d MB", len(text), n>>20)
			}
			if err == nil {
				t.Fatal("is taken")
			}
			if len(err.Error()) > 200 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestDeepEnough(t *testing.T) {
	text := ""
	for i := range 30 {
		text += strings.Repeat(" ", i) + "a:\n"
	}
	text += strings.Repeat(" ", 30) + "- b: " + strings.Repeat("[", 20) + strings.Repeat("]", 20) + "\n"
	text += strings.Repeat("k:\n- a: [{b: c}, {d: &x e}, *x]\n  f: 'a [[[[ - - ? : &x *y'\n  g: |\n    [[[[[\n", 1)
	for i := range 1000 {
		text += fmt.Sprintf("a%d: {b: [c, d], e: !!str f}\nb%d:\n- - c\n  - d\n", i, i)
	}
	var v map[string]any
	if err := Decode([]byte(text), MaxSettings, &v, false); err != nil {
		t.Fatal(err)
	}
	if len(v) != 2002 {
		t.Errorf("%d keys", len(v))
	}
}

func TestByteOrderMark(t *testing.T) {
	var v struct{ A string }
	if err := Decode([]byte("\xef\xbb\xbfa: b\n"), MaxSettings, &v, true); err != nil || v.A != "b" {
		t.Errorf("%q, %v", v.A, err)
	}
	if !Blank([]byte("\xef\xbb\xbf# comment\n---\n \r\n")) || Blank([]byte("# comment\na: b")) {
		t.Error("blank")
	}
}

// TestOnlyReader finds other packages that call the YAML parser, because the parser has no bounds.
func TestOnlyReader(t *testing.T) {
	const module = "github.com/goccy/go-yaml"
	allowed := []string{module + "/ast", module + "/token"} // these parse nothing
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != "../.." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			if !strings.Contains(name, "yaml") || strings.HasPrefix(name, "millrace/") ||
				slices.Contains(allowed, name) {
				continue
			}
			if found++; filepath.Dir(path) != filepath.Join("../..", "internal", "yamltext") {
				t.Errorf("%s imports %s: call millrace/internal/yamltext", path, name)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d imports, %v", found, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range bombs() {
		if len(text) < 4<<10 {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte("a: &x {b: [c]}\nd: *x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return
		}
		var v any
		if n := allocated(func() { _ = Decode(text, MaxSettings, &v, false) }); n > 256<<20 {
			t.Errorf("%d MB", n>>20)
		}
	})
}
