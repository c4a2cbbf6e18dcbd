package testneeds

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNeeds: a program or module that no set installs is an error that names the set, and a program of the set check is missing
// for tests under -short.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		kind, name string
		short      bool
		want       string
	}{
		{"cmd", "ffmpeg", true, ""},
		{"cmd", "sh", true, ""},
		{"cmd", "chromium", false, ""},
		{"cmd", "chromium", true, "chromium is not in the set test of scripts/deps.sh"},
		{"cmd", "no-such-program", false, "no-such-program is not in the set check of scripts/deps.sh"},
		{"py", "numpy", true, ""},
		{"py", "tensorflow", true, "add py:tensorflow=PACKAGE"},
	} {
		err := checkNeed(c.kind, c.name, c.short)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s, short %v: %v, want %q", c.kind, c.name, c.short, err, c.want)
		}
	}
}

// TestProgramsAreNamed: tests name the programs that they run through Program or Python, and Debian's Python through Interpreter.
func TestProgramsAreNamed(t *testing.T) {
	err := filepath.WalkDir(Root(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "out" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		case filepath.Base(filepath.Dir(path)) == "testneeds":
			return nil
		}
		for _, found := range unnamed(t, path) {
			t.Errorf("%s: %s is run directly: name it through testneeds.Program or testneeds.Python", path, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unnamed returns the programs that a file of tests runs by a literal name.
func unnamed(t *testing.T, path string) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		of, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Command", "CommandContext", "LookPath"}, of.Sel.Name) {
			return true
		}
		if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "exec" {
			return true
		}
		at := 0
		if of.Sel.Name == "CommandContext" {
			at = 1
		}
		if lit, ok := call.Args[at].(*ast.BasicLit); ok {
			name, _ := strconv.Unquote(lit.Value)
			if !slices.Contains(present, name) {
				found = append(found, name)
			}
		}
		return true
	})
	return found
}
