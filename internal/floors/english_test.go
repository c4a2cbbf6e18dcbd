package floors

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the longest line of code and prose; a tab is four columns.
const maxColumns = 120

// columns returns the width of a line.
func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// wide returns the numbers of the lines above maxColumns. Tables and code of Markdown, struct tags and raw strings of
// Go, and texts in Go's tests are left out.
func wide(name, text string) []int {
	var found []int
	fenced := false
	raw := map[int]bool{}
	if strings.HasSuffix(name, ".go") {
		raw = rawLines(text)
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		fenced = fenced != strings.HasPrefix(trimmed, "```")
		switch {
		case columns(line) <= maxColumns:
		case strings.HasSuffix(name, ".md") &&
			(fenced || trimmed[0] == '|' || strings.HasPrefix(line, "    ") || !strings.Contains(trimmed, " ")):
		case strings.HasSuffix(name, ".go") && (raw[i+1] || tag.MatchString(line)):
		case strings.HasSuffix(name, "_test.go") && testText.MatchString(line):
		default:
			found = append(found, i+1)
		}
	}
	return found
}

// rawLines returns the lines of raw strings with several lines.
func rawLines(text string) map[int]bool {
	found := map[int]bool{}
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return found
		}
		if n := strings.Count(literal, "\n"); tok == token.STRING && n > 0 {
			first := file.Line(pos)
			for i := first; i <= first+n; i++ {
				found[i] = true
			}
		}
	}
}

var (
	tag      = regexp.MustCompile("`[a-z]+:\".*\"`")
	testText = regexp.MustCompile("`[^`]{25,}`|\"([^\"\\\\]|\\\\.){25,}\"")
)

// texts returns each source file and page below root, from the slash-separated path to the text, without generated
// files.
func texts(root string, endings ...string) (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() {
			if rel != "." && (skipDir(name, rel) || d.Name() == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(endings, filepath.Ext(name)) {
			return nil
		}
		b, err := os.ReadFile(name)
		if err == nil && !bytes.Contains(b[:min(len(b), 600)], []byte("Code generated")) {
			found[filepath.ToSlash(rel)] = string(b)
		}
		return err
	})
	return found, err
}

// generatedPages are pages that a program writes.
var generatedPages = []string{"docs/config.md", "docs/metrics.md", "docs/runbooks.md"}

// TestColumns finds lines of code and prose above 120 columns.
func TestColumns(t *testing.T) {
	all, err := texts("../..", ".go", ".md", ".py", ".ts", ".tsx", ".js", ".mjs", ".css")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("only %d files found", len(all))
	}
	for _, page := range generatedPages {
		if all[page] == "" {
			t.Errorf("the page %s does not exist", page)
		}
		delete(all, page)
	}
	for name, text := range all {
		for _, line := range wide(name, text) {
			t.Errorf("%s:%d is wider than %d columns", name, line, maxColumns)
		}
	}
}

// TestWide checks the exceptions of the width.
func TestWide(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"a.go", long, 1},
		{"a.go", "package a\n\nvar s = `\n" + long + "\n`", 0},
		{"a.go", "x\n\t\t" + strings.Repeat("x", 113), 1},
		{"a.go", "\t\t" + strings.Repeat("x", 112), 0},
		{"a.go", "\tA int `json:\"a\" help:\"" + long + "\"`", 0},
		{"a.md", "| " + long, 0},
		{"a.md", long + "\n```\n" + long + "\n```\n" + long, 2},
		{"a.py", "# " + long, 1},
		{"a.tsx", "\t" + long + "\n```\n" + long, 2},
	} {
		if got := wide(c.name, c.text); len(got) != c.want {
			t.Errorf("%s with %.40q: lines %d, want %d of them", c.name, c.text, got, c.want)
		}
	}
}

// marker is a line that a merge with conflicts writes. The line between the two sides, =======, is left out: under a
// line of Markdown it makes a heading.
var marker = regexp.MustCompile(`(?m)^(<<<<<<<|\|\|\|\|\|\|\||>>>>>>>)( .*)?\r?$`)

// TestNoConflicts finds the markers of merges that nobody has finished.
func TestNoConflicts(t *testing.T) {
	all, err := texts("../..", ".go", ".md", ".py", ".ts", ".tsx", ".js", ".mjs", ".css", ".html", ".sh", ".proto",
		".yaml", ".yml", ".json", ".toml", ".mod", ".sum", ".txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range all {
		if found := marker.FindString(text); found != "" {
			t.Errorf("%s has the line %q of a merge with conflicts: remove the lines of one side", name, found)
		}
	}
	for text, want := range map[string]bool{
		"a\n<<<<<<< HEAD\nb\n": true, "||||||| parent of 1": true, "a\n>>>>>>> 1 (docs)": true, ">>>>>>>\r\n": true,
		"Title\n=======\n": false, "x <<<<<<< y": false, "<<<<<<<<": false, "\t<<<<<<< HEAD": false,
	} {
		if marker.MatchString(text) != want {
			t.Errorf("%q is a marker: %v, want %v", text, !want, want)
		}
	}
}

// pointers are words that stand for a noun said elsewhere. A text with many of them has to be decoded.
var pointers = regexp.MustCompile(
	`(?i)^(which|who|whom|whose|that|those|what|such|it|they|them|its|one|ones|other|others|there)$`)

var word = regexp.MustCompile(`[A-Za-z']+`)

// prose counts the words of one kind of text, and the pointers among the words.
type prose struct{ words, pointers int }

func (p *prose) add(text string) {
	for _, w := range word.FindAllString(text, -1) {
		p.words++
		if pointers.MatchString(w) {
			p.pointers++
		}
	}
}

// density returns the pointers per 100 words.
func (p *prose) density() float64 { return 100 * float64(p.pointers) / float64(max(1, p.words)) }

// mostPointers is the highest density of each kind of text.
var mostPointers = map[string]float64{
	"settings' help": 3.5, "commands' help": 3.5, "README": 3.5,
	"pages": 4, "decisions": 4, "exported comments": 4, "comments": 4.5, "tests' comments": 6,
}

// TestProse holds the density of pointers in comments, help and pages: name the thing again instead.
func TestProse(t *testing.T) {
	all, err := texts("../..", ".go", ".md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*prose{}
	for name, text := range all {
		if err := sort(kinds, name, text); err != nil {
			t.Fatal(err)
		}
	}
	for kind, most := range mostPointers {
		p := kinds[kind]
		if p == nil || p.words < 300 {
			t.Fatalf("%s: no text found", kind)
		}
		t.Logf("%-18s %6d words, %.1f pointers per 100", kind, p.words, p.density())
		if p.density() > most {
			t.Errorf("%s have %.2f words such as %q per 100, the limit is %v: name the thing again",
				kind, p.density(), "which, those, it", most)
		}
	}
}

// sort adds the texts of a file to their kinds.
func sort(kinds map[string]*prose, name, text string) error {
	add := func(kind, text string) {
		if kinds[kind] == nil {
			kinds[kind] = &prose{}
		}
		kinds[kind].add(text)
	}
	switch {
	case name == "README.md":
		add("README", markdown(text))
	case strings.HasPrefix(name, "docs/adr/"):
		add("decisions", markdown(text))
	case strings.HasSuffix(name, ".md"):
		add("pages", markdown(text))
	default:
		return sortGo(add, name, text)
	}
	return nil
}

var (
	help    = regexp.MustCompile(`help:"((?:[^"\\]|\\.)*)"`)
	command = regexp.MustCompile("(?:Short|Long):\\s*[`\"]([^`\"]*)")
)

// sortGo adds the comments and help texts of a Go file.
func sortGo(add func(kind, text string), name, text string) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	docs := exported(f)
	for _, g := range f.Comments {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			add("tests' comments", g.Text())
		case docs[g]:
			add("exported comments", g.Text())
		default:
			add("comments", g.Text())
		}
	}
	for _, m := range help.FindAllStringSubmatch(text, -1) {
		add("settings' help", m[1])
	}
	for _, m := range command.FindAllStringSubmatch(text, -1) {
		add("commands' help", m[1])
	}
	return nil
}

// exported returns the comments of the package and of exported declarations, fields and methods.
func exported(f *ast.File) map[*ast.CommentGroup]bool {
	docs := map[*ast.CommentGroup]bool{f.Doc: true}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			docs[n.Doc] = n.Name.IsExported()
			return false
		case *ast.GenDecl:
			docs[n.Doc] = true
		case *ast.TypeSpec:
			docs[n.Doc] = n.Name.IsExported()
			return n.Name.IsExported()
		case *ast.ValueSpec:
			docs[n.Doc] = n.Names[0].IsExported()
		case *ast.Field:
			docs[n.Doc] = len(n.Names) > 0 && n.Names[0].IsExported()
		}
		return true
	})
	return docs
}

var (
	fences = regexp.MustCompile("(?s)```.*?```")
	spans  = regexp.MustCompile("`[^`]*`")
	links  = regexp.MustCompile(`\]\([^)]*\)`)
)

// markdown returns the prose of a page: no code, no addresses of links.
func markdown(text string) string {
	var lines []string
	for _, line := range strings.Split(fences.ReplaceAllString(text, ""), "\n") {
		if !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "\t") {
			lines = append(lines, line)
		}
	}
	return links.ReplaceAllString(spans.ReplaceAllString(strings.Join(lines, "\n"), "X"), "]")
}

// TestProseIsCounted counts the kinds of a small file.
func TestProseIsCounted(t *testing.T) {
	kinds := map[string]*prose{}
	text := "// Package a has it.\npackage a\n\n// F is one.\nfunc F() {} // those\n\n" +
		"type b struct {\n\tC int `help:\"what\"`\n}\n"
	for name, text := range map[string]string{
		"a.go": text, "a_test.go": "// It.\npackage a", "docs/x.md": "# It\n`which` it\n    it\n",
	} {
		if err := sort(kinds, name, text); err != nil {
			t.Fatal(err)
		}
	}
	for kind, want := range map[string]prose{
		"exported comments": {7, 2}, "comments": {1, 1}, "settings' help": {1, 1}, "tests' comments": {1, 1},
		"pages": {3, 2},
	} {
		if got := kinds[kind]; got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
}
