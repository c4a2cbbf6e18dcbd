package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"millrace/internal/setting"
	"millrace/stream/coded"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Load reads a configuration file over the defaults and checks it. Unknown keys
// are refused. Errors say FILE:LINE: PATH: what is wrong; there may be several,
// joined. Relative paths in it start from its folder.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxFile {
		return Config{}, fmt.Errorf("config: %s is larger than 1MiB", path)
	}
	return parse(text, path, filepath.Dir(path))
}

// Parse reads a configuration as Load does. name stands in errors for the file;
// relative paths start from the working directory.
func Parse(text []byte, name string) (Config, error) { return parse(text, name, "") }

func parse(text []byte, name, dir string) (Config, error) {
	c := Config{}.WithDefaults()
	r := reader{name: name, dir: dir, lines: map[string]int{}, wrong: map[string]bool{}}
	r.read(text, &c)
	for _, err := range setting.Split(c.Validate()) {
		var e *coded.Error
		if !errors.As(err, &e) || !r.wrong[e.Field] { // what could not be read is not missing
			r.note(err)
		}
	}
	return c, setting.Join(r.errs...)
}

// reader reads the nodes of one file into tables of settings.
type reader struct {
	name  string
	dir   string          // that relative paths start from
	lines map[string]int  // by path
	wrong map[string]bool // paths that there is an error about
	errs  []error
}

// note adds the line to an error that has a path: its own or that of the
// nearest section that holds it.
func (r *reader) note(err error) {
	var e *coded.Error
	if errors.As(err, &e) {
		for p := e.Field; p != ""; p = parent(p) {
			r.wrong[p] = true
		}
		for p := e.Field; p != ""; p = parent(p) {
			if line := r.lines[p]; line > 0 {
				r.errs = append(r.errs, fmt.Errorf("%s:%d: %w", r.name, line, err))
				return
			}
		}
	}
	r.errs = append(r.errs, fmt.Errorf("%s: %w", r.name, err))
}

func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

func (r *reader) fail(path string, node ast.Node, format string, args ...any) {
	if node != nil {
		r.line(path, node)
	}
	r.note(coded.Errorf(coded.InvalidArgument, path, format, args...))
}

func (r *reader) line(path string, node ast.Node) {
	if t := node.GetToken(); t != nil && t.Position != nil {
		if _, ok := r.lines[path]; !ok {
			r.lines[path] = t.Position.Line
		}
	}
}

func (r *reader) read(text []byte, c *Config) {
	if len(bytes.TrimSpace(text)) == 0 {
		return
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil && syntax.GetToken().Position != nil {
			err = fmt.Errorf("%s:%d: %s", r.name, syntax.GetToken().Position.Line, syntax.GetMessage())
		} else {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
		r.errs = append(r.errs, err)
		return
	}
	docs := 0
	for _, d := range file.Docs {
		if d == nil || d.Body == nil {
			continue
		}
		if _, comment := d.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		if docs++; docs > 1 {
			r.fail("", nil, "holds more than one document")
			return
		}
		r.server(c, d.Body)
	}
}

// server reads the whole file.
func (r *reader) server(c *Config, node ast.Node) {
	s := section{table: c.table(), lists: []string{"models", "streams"}, list: func(name string, node ast.Node) {
		for i, entry := range r.entries(name, node) {
			at := fmt.Sprintf("%s[%d]", name, i)
			r.line(at, entry)
			if name == "models" {
				c.Models = append(c.Models, r.model(at, entry))
			} else {
				c.Streams = append(c.Streams, r.stream(at, entry))
			}
		}
	}}
	r.section(&s, "", "", node)
}

// entries returns the entries of a list.
func (r *reader) entries(path string, node ast.Node) []ast.Node {
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		r.fail(path, nil, "is not a list: want %s, each as - name: ...", path)
		return nil
	}
	return list.Values
}

// section is what the keys of an entry mean.
type section struct {
	table *setting.Table
	// other reads a value that is no setting of the table; nil = there are none.
	other func(name string, values []string) error
	// list reads the lists of entries of that names.
	list  func(name string, node ast.Node)
	lists []string
}

// section reads a mapping: a whole entry, or the section of it whose path inside
// the entry is in. at is the path of the entry.
func (r *reader) section(s *section, at, in string, node ast.Node) {
	var members []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		members = n.Values
	case *ast.MappingValueNode:
		members = []*ast.MappingValueNode{n}
	case nil, *ast.NullNode:
		return
	default:
		r.fail(join(at, in), node, "is not a section of settings, as name: value")
		return
	}
	seen := map[string]bool{}
	for _, m := range members {
		name, ok := keyName(m.Key)
		path := join(at, join(in, name))
		r.line(path, m.Key)
		switch {
		case !ok:
			r.fail(path, m.Key, "is no name of a setting")
		case seen[name]:
			r.fail(path, m.Key, "is there twice")
		default:
			r.member(s, at, join(in, name), m.Value)
		}
		seen[name] = true
	}
}

func join(at, name string) string { return strings.Trim(at+"."+name, ".") }

func keyName(k ast.MapKeyNode) (string, bool) {
	if k == nil || k.GetToken() == nil {
		return "", false
	}
	if s, ok := k.(*ast.StringNode); ok {
		// A name with a dot in it would pass for a path.
		return s.Value, s.Value != "" && !strings.ContainsAny(s.Value, ".[] \n")
	}
	return k.GetToken().Value, false
}

// maxDepth bounds sections in sections.
const maxDepth = 8

// member reads what a key has. name is its path inside the entry at.
func (r *reader) member(s *section, at, name string, node ast.Node) {
	path := join(at, name)
	if at == "" && slices.Contains(s.lists, name) {
		s.list(name, node)
		return
	}
	_, known := s.table.Find(name)
	ours := s.table.IsSection(name)
	switch n := node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		m, _ := n.(*ast.MappingNode)
		switch {
		case known:
			r.fail(path, nil, "is one value, not a section")
		case strings.Count(name, ".") >= maxDepth:
			r.fail(path, nil, "is nested too deep")
		case !ours && (s.other == nil || m != nil && len(m.Values) == 0):
			r.note(within(at, s.table.Unknown(name)))
		default:
			s.table.Choose(name) // an empty section is chosen too
			r.section(s, at, name, node)
		}
		return
	case *ast.NullNode:
		if !known && ours {
			s.table.Choose(name)
			return
		}
	}
	values, ok := r.scalars(path, node)
	if !ok {
		return
	}
	if f, ok := s.table.Find(name); ok && f.File && len(values) == 1 {
		values[0] = below(r.dir, values[0])
	}
	if err := s.set(name, values); err != nil {
		r.note(within(at, err))
	}
}

// within puts the path of an entry before the path that err names.
func within(at string, err error) error {
	if at == "" {
		return err
	}
	return coded.Within(at, err)
}

// set sets one setting of an entry by its path inside it.
func (s *section) set(name string, values []string) error {
	if _, known := s.table.Find(name); known {
		return s.table.Set(name, values...)
	}
	if len(values) == 1 && s.table.Choose(join(name, values[0])) { // output: yolo
		return nil
	}
	if s.other != nil {
		return s.other(name, values)
	}
	return s.unknown(name)
}

// unknown is the error about what is no setting of the table.
func (s *section) unknown(name string) error {
	if names := s.table.Below(name); len(names) > 0 {
		return coded.Errorf(coded.InvalidArgument, name, "is a section: it has %s", strings.Join(names, ", "))
	}
	return s.table.Unknown(name)
}

// scalars reads one value or a list of them.
func (r *reader) scalars(path string, node ast.Node) ([]string, bool) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		text, ok := r.scalar(path, node)
		return []string{text}, ok
	}
	texts := make([]string, len(list.Values))
	for i, n := range list.Values {
		if texts[i], ok = r.scalar(fmt.Sprintf("%s[%d]", path, i), n); !ok {
			return nil, false
		}
	}
	return texts, true
}

// scalar returns a plain value as it was written: what it means depends on the
// setting, so that version 1.10 is not 1.1.
func (r *reader) scalar(path string, node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		if n.Value != nil {
			return n.Value.Value, true
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if t := node.GetToken(); t != nil {
			return t.Value, true
		}
	case *ast.NullNode, nil:
		r.fail(path, nil, "is empty: leave it out for its default")
		return "", false
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		r.fail(path, node, "is an anchor, alias or tag: these are not read here")
		return "", false
	}
	r.fail(path, node, "is not a plain value")
	return "", false
}
