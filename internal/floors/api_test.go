package floors

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages used by programs to embed or reach the server: exported declarations name no type that such
// a program cannot name.
var public = []string{"stream", "stream/buf", "stream/coded", "stream/rules", "stream/window", "server", "client",
	"ingest/native"}

// exposed are the exceptions. The list only gets shorter: TestExportedTypes fails for an unneeded exception.
var exposed = []string{}

func TestExportedTypes(t *testing.T) {
	var got []string
	for _, dir := range public {
		names, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(names), err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			uses, err := internalTypes(src)
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range uses {
				got = append(got, dir+"."+use)
			}
		}
	}
	for _, use := range got {
		if !slices.Contains(exposed, use) {
			t.Errorf("%s: programs that embed the server cannot name it", use)
		}
	}
	for _, use := range exposed {
		if !slices.Contains(got, use) {
			t.Errorf("%s is clean: take it off the list", use)
		}
	}
}

// internalTypes returns the uses of packages below internal in the exported declarations of a file: "Server.Memory:
// buf.Pool". A variable without a declared type has the type of its initial value.
func internalTypes(src []byte) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	hidden := map[string]bool{} // by the package's name in this file
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(path, module+"/internal/") {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		hidden[name] = true
	}
	found := map[string]bool{}
	look := func(name string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field: // of a struct or an interface: only exported fields
				if len(n.Names) > 0 && !slices.ContainsFunc(n.Names, (*ast.Ident).IsExported) {
					return false
				}
			case *ast.FuncType: // names of parameters are not exported, their types are
				for _, list := range []*ast.FieldList{n.TypeParams, n.Params, n.Results} {
					for _, p := range fields(list) {
						ast.Inspect(p.Type, func(n ast.Node) bool { return note(n, name, hidden, found) })
					}
				}
				return false
			case *ast.BlockStmt:
				return false
			}
			return note(n, name, hidden, found)
		})
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if of := receiver(d); d.Name.IsExported() && (of == "" || ast.IsExported(of)) {
				look(strings.TrimPrefix(of+"."+d.Name.Name, "."), d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					for _, p := range fields(s.TypeParams) {
						look(s.Name.Name, p.Type)
					}
					look(s.Name.Name, s.Type)
				case *ast.ValueSpec:
					for i, n := range s.Names {
						switch {
						case !n.IsExported():
						case s.Type != nil:
							look(n.Name, s.Type)
						case i < len(s.Values):
							look(n.Name, s.Values[i])
						}
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func note(n ast.Node, name string, hidden, found map[string]bool) bool {
	if s, ok := n.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok && hidden[pkg.Name] {
			found[fmt.Sprintf("%s: %s.%s", name, pkg.Name, s.Sel.Name)] = true
		}
	}
	return true
}

func fields(l *ast.FieldList) []*ast.Field {
	if l == nil {
		return nil
	}
	return l.List
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// TestInternalTypes checks the uses that internalTypes finds and ignores.
func TestInternalTypes(t *testing.T) {
	for src, want := range map[string]string{
		`func F(n int, b *buf.Buf) {}`:                                        "F: buf.Buf",
		`func F() (a, b *buf.Buf, err error) { return }`:                      "F: buf.Buf",
		`func F[T interface{ ~[]buf.Buf }](T) {}`:                             "F: buf.Buf",
		`func F(f func(m map[string]chan<- buf.Pool)) {}`:                     "F: buf.Pool",
		`func (s *S) M() other.T { panic(1) }`:                                "S.M: other.T",
		`func (s S[T]) M(x *other.T) {}`:                                      "S.M: other.T",
		`type S struct { A int; B *buf.Buf }`:                                 "S: buf.Buf",
		`type S struct { *buf.Buf }`:                                          "S: buf.Buf",
		`type S struct { In struct { Deep buf.Buf } }`:                        "S: buf.Buf",
		`type I interface { M(b *buf.Buf) }`:                                  "I: buf.Buf",
		`type I interface { other.I }`:                                        "I: other.I",
		`type T = buf.Buf`:                                                    "T: buf.Buf",
		`type T buf.Buf`:                                                      "T: buf.Buf",
		`var V buf.Buf`:                                                       "V: buf.Buf",
		`var V, W = 1, buf.New()`:                                             "W: buf.New",
		`const C = other.C`:                                                   "C: other.C",
		`func F() { var b buf.Buf; _ = b }`:                                   "",
		`func f(b buf.Buf) {}`:                                                "",
		`func (s *s) M(b buf.Buf) {}`:                                         "",
		`type s struct { B buf.Buf }`:                                         "",
		`type S struct { b *buf.Buf; in struct { Deep buf.Buf } }`:            "",
		`type I interface { m(b *buf.Buf) }`:                                  "",
		`var v = buf.New()`:                                                   "",
		`func F(x T.buf, y stream.Frame) {}`:                                  "",
		`type S struct { B fmt.Stringer }; func F(a coded.Error) coded.Error`: "",
	} {
		got, err := internalTypes([]byte("package p\nimport (\n\"fmt\"\n\"millrace/internal/buf\"\nother " +
			"\"millrace/internal/x/oip\"\n\"millrace/stream/coded\"\n)\n" + src))
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, %v, want %q", src, got, err, want)
		}
	}
}
