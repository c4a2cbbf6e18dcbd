package testneeds

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// For a program or module installed by no set, the error names the set; a program of the set check is missing for
// tests under -short.
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

// A program runs at once, even while many goroutines start processes.
func TestWriteProgram(t *testing.T) {
	dir := t.TempDir()
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for j := range 50 {
				path := filepath.Join(dir, fmt.Sprint(i, "-", j))
				WriteProgram(t, path, "#!/bin/sh\n")
				if err := exec.Command(path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
}

// Tests get programs by Program or Python, and write their own by WriteProgram.
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
		for _, found := range unnamed(t, path, nil) {
			t.Errorf("%s:%s", path, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each way to run a program by its name, or to write a program, is found.
func TestUnnamed(t *testing.T) {
	for code, want := range map[string]bool{
		`exec.Command("ffmpeg")`:                       true,
		`exec.Command("sh")`:                           false,
		`exec.CommandContext(ctx, "ffmpeg")`:           true,
		`exec.LookPath("ffmpeg")`:                      true,
		`exec.Command(name)`:                           true,
		`exec.Command(testneeds.Program(t, name))`:     false,
		`clip.Write(ctx, s, "ffmpeg", dir, w)`:         true,
		`child.Start(ctx, child.Spec{Path: "ffmpeg"})`: true,
		`child.Start(ctx, child.Spec{Path: "sh"})`:     false,
		`child.Start(ctx, child.Spec{Path: path})`:     false,
		`c.Path = "/usr/bin/ffmpeg"`:                   true,
		`const interpreter = "/usr/bin/python3"`:       true,
		`os.WriteFile(path, text, 0o700)`:              true,
		`os.WriteFile(path, text, 0o600)`:              false,
	} {
		got := unnamed(t, "x_test.go", "package x\n\nfunc run(t *testing.T, name string) {\n"+code+"\n}\n")
		if len(got) > 0 != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}

// programArgument is the place of the program among the arguments of functions that run programs.
var programArgument = map[string]int{"exec.Command": 0, "exec.CommandContext": 1, "exec.LookPath": 0, "clip.Write": 2}

// unnamed returns where a file of tests runs a program by a literal name or a parameter "name", or writes a program.
func unnamed(t *testing.T, path string, src any) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%d: ", files.Position(n.Pos()).Line)+fmt.Sprintf(format, args...))
	}
	run := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name == "name" {
			report(e, "a parameter is run: name it through testneeds.Program")
		}
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, _ := strconv.Unquote(lit.Value)
			if missing := filepath.IsAbs(name) && !installed(e) ||
				strings.Contains(name, "no-such"); !missing && !slices.Contains(present, name) {
				report(e, "%s is run directly: name it through testneeds.Program or testneeds.Python", name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			callee := nameOf(n.Fun)
			if at, ok := programArgument[callee]; ok && at < len(n.Args) {
				run(n.Args[at])
			}
			if callee == "os.WriteFile" && len(n.Args) == 3 && executable(n.Args[2]) {
				report(n, "a program is written: write it through testneeds.WriteProgram")
			}
		case *ast.CompositeLit:
			if of := nameOf(n.Type); of != "child.Spec" && of != "exec.Cmd" {
				break
			}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && nameOf(kv.Key) == "Path" {
					run(kv.Value)
				}
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if of, ok := to.(*ast.SelectorExpr); ok && of.Sel.Name == "Path" && len(n.Rhs) == len(n.Lhs) &&
					installed(n.Rhs[i]) {
					run(n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for _, e := range n.Values {
				if installed(e) {
					run(e)
				}
			}
		}
		return true
	})
	return found
}

// nameOf returns an identifier, with its package if any, such as exec.Command.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			return pkg.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// installed reports whether an expression is the path of an installed program.
func installed(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && (strings.HasPrefix(lit.Value, `"/usr/bin/`) || strings.HasPrefix(lit.Value, `"/usr/sbin/`))
}

// executable reports whether an expression is a file mode with execute permission.
func executable(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return false
	}
	mode, err := strconv.ParseUint(lit.Value, 0, 32)
	return err == nil && mode&0o111 != 0
}
