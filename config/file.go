package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"millrace/internal/modelurl"
	"millrace/internal/setting"
	"millrace/internal/textfile"
	"millrace/internal/yamltext"
	"millrace/stream/coded"
)

// maxFile bounds the size of a configuration file.
const maxFile = 1 << 20

// Load reads and checks a configuration file. Unknown keys are errors. All errors are joined, each in the form
// FILE:LINE: PATH: message. Relative paths in the file are relative to the file's folder.
func Load(path string) (Config, error) {
	c, _, err := LoadAgain(context.Background(), path, textfile.Shape{})
	return c, err
}

// LoadAgain is Load after a change of the file. LoadAgain returns the shape of the text for the next call. With the
// shape of a previous text, an empty, truncated or half-written file is an error.
func LoadAgain(ctx context.Context, path string, before textfile.Shape) (Config, textfile.Shape, error) {
	text, err := textfile.ReadChanged(ctx, path, maxFile, before)
	if err != nil {
		return Config{}, before, err
	}
	c, err := parse(text, path, filepath.Dir(path))
	c.File = path
	if err != nil {
		return c, before, err
	}
	return c, textfile.ShapeOf(text), nil
}

// Parse reads a configuration as Load does. name is the file's name in errors; relative
// paths are relative to the working directory.
func Parse(text []byte, name string) (Config, error) { return parse(text, name, "") }

func parse(text []byte, name, dir string) (Config, error) {
	c := Config{}.WithDefaults()
	r := reader{name: name, dir: dir, lines: map[string]int{}, wrong: map[string]bool{}}
	r.read(text, &c)
	c.part = true
	problems := c.Validate()
	c.part = false
	for _, err := range setting.Split(problems) {
		var e *coded.Error
		if !errors.As(err, &e) || !r.wrong[e.Field] { // an unreadable value is not also reported as missing
			r.add(err)
		}
	}
	return c, setting.Join(r.errs...)
}

// reader reads the nodes of a file into tables of settings.
type reader struct {
	name  string
	dir   string          // base of relative paths
	lines map[string]int  // line of each path
	wrong map[string]bool // paths with an error
	errs  []error
}

// add adds the line to an error with a path: the line of the path, or of the nearest section around the path.
func (r *reader) add(err error) {
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
	r.add(coded.Errorf(coded.InvalidArgument, path, format, args...))
}

func (r *reader) line(path string, node ast.Node) {
	if t := node.GetToken(); t != nil {
		if _, ok := r.lines[path]; !ok {
			r.lines[path] = t.Position.Line
		}
	}
}

func (r *reader) read(text []byte, c *Config) {
	if len(bytes.TrimSpace(yamltext.WithoutMark(text))) == 0 {
		return
	}
	r.documents(text, func(body ast.Node) { r.server(c, body) })
}

// documents parses a file and calls read with the only document, which may be nil.
func (r *reader) documents(text []byte, read func(body ast.Node)) {
	file, err := yamltext.Parse(text, yamltext.MaxSettings)
	if err != nil {
		var syntax *yamltext.Error
		if errors.As(err, &syntax) && syntax.Line > 0 {
			err = fmt.Errorf("%s:%d: %s", r.name, syntax.Line, syntax.Reason)
		} else {
			err = fmt.Errorf("%s: %w", r.name, err)
		}
		r.errs = append(r.errs, err)
		return
	}
	docs := 0
	for _, d := range file.Docs {
		left := hasFurtherDocument(d.Start)
		if d.Body != nil {
			docs++
		}
		if docs > 1 || left {
			r.fail("", nil, "has more than one document")
			return
		}
		read(d.Body)
	}
}

// hasFurtherDocument reports whether a further document follows header: the parser leaves out a document after an empty
// document.
func hasFurtherDocument(header *token.Token) bool {
	for t := header; t != nil; t = t.Next {
		if t != header && t.Type == token.DocumentHeaderType {
			return true
		}
	}
	return false
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
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		r.fail(path, nil, "is not a list: want %s, each as - name: ...", path)
		return nil
	}
	return list.Values
}

// section reads the keys of an entry.
type section struct {
	table *setting.Table
	// readUnknown reads a value for a key outside of the table; nil = unknown keys are errors.
	readUnknown func(name string, values []string) error
	// listTable has the parameters with lists; put takes their values.
	listTable *setting.Table
	put       func(name string, value any)
	// list reads a list of entries with a name in lists.
	list  func(name string, node ast.Node)
	lists []string
}

// section reads a mapping: the entry at path at, or the section in of this entry.
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
			r.fail(path, m.Key, "is not the name of a setting")
		case seen[name]:
			r.fail(path, m.Key, "is given twice")
		default:
			r.value(s, at, join(in, name), m.Value)
		}
		seen[name] = true
	}
}

func join(at, name string) string { return strings.Trim(at+"."+name, ".") }

func keyName(k ast.MapKeyNode) (string, bool) {
	switch s, ok := k.(*ast.StringNode); {
	case !ok:
		return k.GetToken().Value, false
	case s.Value == "":
		return `""`, false
	default: // a name with a dot would look like a path
		return s.Value, !strings.ContainsAny(s.Value, ".[] \n")
	}
}

// maxDepth bounds sections in sections.
const maxDepth = 8

// value reads the value of a key. name is the key's path within the entry at.
func (r *reader) value(s *section, at, name string, node ast.Node) {
	path := join(at, name)
	if yamltext.Null(node) && r.noValue(s, at, name) {
		return
	}
	if at == "" && slices.Contains(s.lists, name) {
		s.list(name, node)
		return
	}
	if l, ok := s.table.FindList(name); ok {
		r.list(l, path, node)
		return
	}
	if s.listTable != nil {
		if l, ok := s.listTable.FindList(name); ok {
			r.list(l, path, node)
			s.put(name, l.Param())
			return
		}
	}
	if n, ok := s.table.FindNames(name); ok {
		r.names(n, path, node)
		return
	}
	f, known := s.table.Find(name)
	isSection := s.table.IsSection(name)
	switch n := node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		m, _ := n.(*ast.MappingNode)
		switch {
		case known:
			r.fail(path, nil, "is one value, not a section")
		case strings.Count(name, ".") >= maxDepth:
			r.fail(path, nil, "is nested too deeply")
		case !isSection && (s.readUnknown == nil || m != nil && len(m.Values) == 0):
			r.add(prefixPath(at, s.table.Unknown(name, s.lists...)))
		default:
			s.table.Choose(name) // an empty section is given, too
			r.section(s, at, name, node)
		}
		return
	case *ast.SequenceNode:
		if !known && !isSection && s.readUnknown == nil {
			r.add(prefixPath(at, s.table.Unknown(name, s.lists...)))
			return
		}
	}
	values, ok := r.scalars(path, node, f.Help, known && f.IsPoints())
	if !ok {
		return
	}
	if known && f.File {
		for i, v := range values {
			if !modelurl.Is(v) { // of model_repository
				values[i] = inDir(r.dir, v)
			}
		}
	}
	if err := s.set(name, values); err != nil {
		r.add(prefixPath(at, err))
	}
}

// noValue refuses a list or section without a value, a sign of a file truncated after the key. noValue reports
// whether name is a list or section.
func (r *reader) noValue(s *section, at, name string) bool {
	_, isList := s.table.FindList(name)
	if s.listTable != nil && !isList {
		_, isList = s.listTable.FindList(name)
	}
	_, isSetting := s.table.Find(name)
	_, isNames := s.table.FindNames(name)
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case isList || at == "" && slices.Contains(s.lists, name):
		r.fail(join(at, name), nil, "has no entries: write %s: [] to have none, or leave the key out", last)
	case isNames || !isSetting && s.table.IsSection(name):
		r.fail(join(at, name), nil, "has no settings: write %s: {} to have none, or leave the key out", last)
	default:
		return false
	}
	return true
}

// list reads the entries of a list of an entry.
func (r *reader) list(l setting.List, path string, node ast.Node) {
	entries, ok := node.(*ast.SequenceNode)
	if !ok {
		r.fail(path, nil, "is not a list: want entries with %s", strings.Join(l.Describe().Below(""), ", "))
		return
	}
	for i, entry := range entries.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.line(at, entry)
		s := section{table: l.Add()}
		r.section(&s, at, "", entry)
	}
}

// names reads a section with any keys.
func (r *reader) names(n setting.Names, path string, node ast.Node) {
	var members []*ast.MappingValueNode
	switch node := node.(type) {
	case *ast.MappingNode:
		members = node.Values
	case *ast.MappingValueNode:
		members = []*ast.MappingValueNode{node}
	default:
		r.fail(path, nil, "is not a section of names, as name: name")
		return
	}
	seen := map[string]bool{}
	for _, m := range members {
		token := m.Key.GetToken()
		if token == nil || seen[token.Value] {
			r.fail(path, m.Key, "has a name that is given twice")
			continue
		}
		seen[token.Value] = true
		text, ok := r.scalar(path, m.Value, n.Help)
		if !ok {
			continue
		}
		if err := n.Put(token.Value, text); err != nil {
			r.fail(path, m.Key, "has an empty name")
		}
	}
}

// prefixPath puts the path of an entry before the path in err.
func prefixPath(at string, err error) error {
	if at == "" {
		return err
	}
	return coded.PrefixField(at, err)
}

// set sets one setting of an entry by the path within the entry.
func (s *section) set(name string, values []string) error {
	if _, known := s.table.Find(name); known {
		return s.table.Set(name, values...)
	}
	if len(values) == 1 && s.table.Choose(join(name, values[0])) { // output: yolo
		return nil
	}
	if s.readUnknown != nil {
		return s.readUnknown(name, values)
	}
	return s.unknown(name)
}

// unknown returns the error for a key outside of the table.
func (s *section) unknown(name string) error {
	if names := s.table.Below(name); len(names) > 0 {
		return coded.Errorf(coded.InvalidArgument, name, "is a section: it has %s", strings.Join(names, ", "))
	}
	return s.table.Unknown(name, s.lists...)
}

// scalars reads one value, a list of values, or a list of points. help describes the setting, for errors.
func (r *reader) scalars(path string, node ast.Node, help string, points bool) ([]string, bool) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		text, ok := r.scalar(path, node, help)
		return []string{text}, ok
	}
	texts := make([]string, len(list.Values))
	for i, n := range list.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		if point, is := n.(*ast.SequenceNode); is && points {
			texts[i], ok = r.point(at, point)
		} else {
			texts[i], ok = r.scalar(at, n, help)
		}
		if !ok {
			return nil, false
		}
	}
	return texts, true
}

// point returns the numbers of a point, separated by commas.
func (r *reader) point(path string, node *ast.SequenceNode) (string, bool) {
	texts := make([]string, len(node.Values))
	for i, n := range node.Values {
		var ok bool
		if texts[i], ok = r.scalar(fmt.Sprintf("%s[%d]", path, i), n, "a number"); !ok {
			return "", false
		}
	}
	return strings.Join(texts, ","), true
}

// scalar returns the text of a plain value. The setting determines the type, so that the version 1.10 does not become
// 1.1.
func (r *reader) scalar(path string, node ast.Node, help string) (string, bool) {
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
		r.fail(path, node, "is an anchor, alias or tag: these are not supported")
		return "", false
	}
	if help == "" {
		r.fail(path, node, "is a list or a section: want one value")
	} else {
		r.fail(path, node, "is a list or a section: want one value (%s)", help)
	}
	return "", false
}
