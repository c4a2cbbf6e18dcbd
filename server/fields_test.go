package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// maxFields is the most fields of Server, so that a reader can remember the parts of a server.
const maxFields = 30

// TestFieldsOfServer holds the number of fields of Server, counted so that a field moved into a struct does not vanish:
//
//   - Each field of Server counts as one.
//   - Each field of a struct in Server counts as well when code of Server reads or sets the field (s.PART.FIELD),
//     because a reader of Server then has to know the field. Fields that only the methods of the part use do not count.
//   - A struct without methods only groups fields: all of its fields count.
//
// Code of Server is every function with a *Server: methods, functions with a parameter or a new Server, and methods of
// types with a field of this type.
func TestFieldsOfServer(t *testing.T) {
	counted := countFields(t, sourceFiles(t), "Server")
	if len(counted) > maxFields {
		t.Errorf("Server has %d fields, the limit is %d: give fields to the part that uses the fields, with the methods "+
			"of Server that use nothing else\n%s", len(counted), maxFields, strings.Join(counted, "\n"))
	}
	t.Logf("%d fields: %s", len(counted), strings.Join(counted, " "))
}

// TestFieldsAreCounted counts the fields of a small type.
func TestFieldsAreCounted(t *testing.T) {
	got := countFields(t, []string{`package a
type Server struct {
	a, b int
	part part
	bag  *bag
	free struct{ g int }
}
type part struct { c, d, e int }
func (p *part) sum() int { return p.c + p.d }
type bag struct { f int }
type holder struct{ s *Server }
`, `package a
func (s *Server) one() int { return s.part.c + s.part.sum() }
func (h holder) two() { h.s.part.c++ }
func three(x *Server, p *part) { _, p.d = x.part.e, 1 }
func four() { n := &Server{}; n.part.d = 1 }
`}, "Server")
	want := []string{"a", "b", "bag", "bag.f", "free", "free.g", "part", "part.c", "part.d", "part.e"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// sourceFiles returns the texts of the package's files without tests.
func sourceFiles(t *testing.T) (texts []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// countFields returns the counted fields of the type name in the files of a package, sorted.
func countFields(t *testing.T, texts []string, name string) []string {
	t.Helper()
	structs, methods := map[string]*ast.StructType{}, map[string]bool{}
	var files []*ast.File
	for _, text := range texts {
		f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if of, ok := n.Type.(*ast.StructType); ok {
					structs[n.Name.Name] = of
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[typeName(n.Recv.List[0].Type)] = true
				}
			}
			return true
		})
	}
	counted, parts := map[string]bool{}, map[string]map[string]bool{} // by part, the fields of the part
	for _, f := range structs[name].Fields.List {
		of, grouped := f.Type.(*ast.StructType)
		if !grouped {
			of = structs[typeName(f.Type)]
			grouped = of != nil && !methods[typeName(f.Type)]
		}
		for _, part := range fieldNames(f) {
			counted[part] = true
			if of == nil {
				continue
			}
			parts[part] = map[string]bool{}
			for _, inner := range of.Fields.List {
				for _, field := range fieldNames(inner) {
					parts[part][field] = true
					counted[part+"."+field] = counted[part+"."+field] || grouped
				}
			}
		}
	}
	holders := map[string]bool{} // names of fields of the type
	for _, of := range structs {
		for _, f := range of.Fields.List {
			for _, field := range fieldNames(f) {
				holders[field] = holders[field] || typeName(f.Type) == name
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			own := map[string]bool{} // receivers and parameters of the type
			for _, list := range []*ast.FieldList{fn.Recv, fn.Type.Params} {
				if list == nil {
					continue
				}
				for _, p := range list.List {
					for _, n := range p.Names {
						own[n.Name] = typeName(p.Type) == name
					}
				}
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					for _, p := range n.Type.Params.List {
						for _, id := range p.Names {
							own[id.Name] = typeName(p.Type) == name
						}
					}
				case *ast.AssignStmt:
					if id, ok := n.Lhs[0].(*ast.Ident); ok && isNew(n.Rhs[0], name) {
						own[id.Name] = true
					}
				}
				outer, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				inner, ok := outer.X.(*ast.SelectorExpr)
				if !ok || !parts[inner.Sel.Name][outer.Sel.Name] {
					return true
				}
				switch x := inner.X.(type) {
				case *ast.Ident:
					ok = own[x.Name]
				case *ast.SelectorExpr:
					ok = holders[x.Sel.Name]
				}
				if ok {
					counted[inner.Sel.Name+"."+outer.Sel.Name] = true
				}
				return true
			})
		}
	}
	maps.DeleteFunc(counted, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(counted))
}

// isNew reports whether an expression is &NAME{...}.
func isNew(of ast.Expr, name string) bool {
	address, ok := of.(*ast.UnaryExpr)
	if !ok {
		return false
	}
	lit, ok := address.X.(*ast.CompositeLit)
	return ok && typeName(lit.Type) == name
}

// typeName returns the name of a type T or *T of the package, or "".
func typeName(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// fieldNames returns the names of a field; the name of an embedded field is the name of the type.
func fieldNames(f *ast.Field) (names []string) {
	for _, n := range f.Names {
		names = append(names, n.Name)
	}
	if len(f.Names) == 0 {
		names = append(names, typeName(f.Type))
	}
	return names
}
