// Package floors owns the rules that keep the packages apart: the imports allowed to each package, the packages with
// access to the telemetry libraries, and the length of files. The package has only tests, works on parsed sources,
// and imports no other package of the module.
package floors

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// load reads every source file below root, whatever its build tags. Like the go command, load skips ignored files,
// and also build output, installed packages and nested modules except tools.
func load(root string) (map[string]file, error) {
	tree := map[string]file{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && skipDir(name, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".js", ".css", ".py", ".sh"}, filepath.Ext(name)) {
			return nil
		}
		f, err := read(name)
		tree[filepath.ToSlash(rel)] = f
		return err
	})
	return tree, err
}

func skipDir(name, rel string) bool {
	base := filepath.Base(name)
	if rel == "out" || rel == "bin" || base == "testdata" || base == "node_modules" || base == "vendor" ||
		base[0] == '.' || base[0] == '_' {
		return true
	}
	if rel == "tools" {
		return false
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

func read(name string) (file, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	f := file{lines: bytes.Count(src, []byte("\n")), test: strings.HasSuffix(name, "_test.go")}
	if ext := filepath.Ext(name); ext == ".go" || ext == ".py" {
		f.system = string(systems.Find(src))
	}
	if filepath.Ext(name) != ".go" {
		return f, nil
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	f.pkg = syntax.Name.Name
	f.doc = syntax.Doc.Text()
	f.generated = ast.IsGenerated(syntax)
	for _, spec := range syntax.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, to)
	}
	for _, decl := range syntax.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}
		for _, spec := range group.Specs {
			if typ := spec.(*ast.TypeSpec); typ.Name.IsExported() {
				f.types = append(f.types, typ.Name.Name)
			}
		}
	}
	return f, nil
}

// write makes the files, from path below root to content.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
