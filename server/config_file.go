package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"millrace/stream"
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
	c := Defaults()
	r := reader{name: name, dir: dir, lines: map[string]int{}}
	r.read(text, &c)
	for i := range c.Models {
		c.Models[i].dir = dir
	}
	c.StreamsFile = within(dir, c.StreamsFile)
	if len(r.errs) == 0 {
		if err := c.Validate(); err != nil {
			for _, err := range flat(err) {
				r.note(err)
			}
		}
	}
	return c, errors.Join(r.errs...)
}

func flat(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// reader walks the nodes of one file.
type reader struct {
	name  string
	dir   string         // that relative paths start from; "" = the working directory
	lines map[string]int // by path, for what Validate finds afterwards
	errs  []error
}

// note adds the line to an error that has a path: its own or that of the
// nearest section that holds it.
func (r *reader) note(err error) {
	var e *stream.Error
	if errors.As(err, &e) {
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
			r.note(fault("", "holds more than one document"))
			return
		}
		r.section(d.Body, "", func(path, name string, node ast.Node) { r.top(c, path, name, node) })
	}
}

// section calls each for the members of a mapping. at is its path.
func (r *reader) section(node ast.Node, at string, each func(path, name string, node ast.Node)) {
	var members []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		members = n.Values
	case *ast.MappingValueNode:
		members = []*ast.MappingValueNode{n}
	case nil, *ast.NullNode:
		return
	default:
		r.fail(at, node, "is not a section of settings, as %s", "name: value")
		return
	}
	seen := map[string]bool{}
	for _, m := range members {
		name, ok := keyName(m.Key)
		path := strings.TrimPrefix(at+"."+name, ".")
		r.line(path, m.Key)
		switch {
		case !ok:
			r.fail(path, m.Key, "is no name of a setting")
		case seen[name]:
			r.fail(path, m.Key, "is there twice")
		default:
			each(path, name, m.Value)
		}
		seen[name] = true
	}
}

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

func (r *reader) line(path string, node ast.Node) {
	if t := node.GetToken(); t != nil && t.Position != nil {
		if _, ok := r.lines[path]; !ok {
			r.lines[path] = t.Position.Line
		}
	}
}

func (r *reader) fail(path string, node ast.Node, format string, args ...any) {
	if node != nil {
		r.line(path, node)
	}
	r.note(fault(path, format, args...))
}

// top reads a setting of the server, or a section of them.
func (r *reader) top(c *Config, path, name string, node ast.Node) {
	all := append(paths(keys), "models", "streams")
	switch {
	case path == "models":
		r.models(c, node)
	case path == "streams":
		r.streams(c, node)
	case len(below(all, path+".")) > 0:
		r.section(node, path, func(path, name string, node ast.Node) { r.top(c, path, name, node) })
	default:
		for _, k := range keys {
			if k.path == path {
				if vs, ok := r.scalars(path, node); ok {
					if err := assign(k.at(c), vs); err != nil {
						r.fail(path, nil, "%w", err)
					}
				}
				return
			}
		}
		r.note(unknown(path, path, all))
	}
}

func (r *reader) models(c *Config, node ast.Node) {
	c.Models = append(c.Models, entries(r, "models", node, r.member)...)
}

// entries reads a list of sections, each key of one by member.
func entries[T any](r *reader, path string, node ast.Node, member func(entry *T, path, name string, node ast.Node)) (out []T) {
	list, ok := node.(*ast.SequenceNode)
	if _, null := node.(*ast.NullNode); null {
		return nil
	}
	if !ok {
		r.fail(path, nil, "is not a list: want %s, each as - name: ...", path)
		return nil
	}
	for i, n := range list.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.line(at, n)
		var entry T
		r.section(n, at, func(path, name string, node ast.Node) { member(&entry, path, name, node) })
		out = append(out, entry)
	}
	return out
}

// member reads a key of a model. name is its path inside the model. A section
// that is none of ours holds parameters of the worker.
func (r *reader) member(m *ModelConfig, path, name string, node ast.Node) {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for _, k := range modelKeys {
			if k.path == name {
				r.fail(path, nil, "is one value, not a section")
				return
			}
		}
		if strings.Count(name, ".") > 8 {
			r.fail(path, nil, "is nested too deep")
			return
		}
		if section, last, ok := strings.Cut(name, "."); ok {
			m.choose(section, last) // an empty section has chosen too
		}
		r.section(node, path, func(path, last string, node ast.Node) { r.member(m, path, name+"."+last, node) })
		return
	}
	if s, ok := word(node); ok && m.choose(name, s) {
		return
	}
	for _, k := range modelKeys {
		if strings.HasPrefix(k.path, name+".") {
			if _, null := node.(*ast.NullNode); !null {
				r.fail(path, nil, "is a section: it has %s", strings.Join(below(paths(modelKeys), name+"."), ", "))
			}
			return
		}
	}
	if vs, ok := r.scalars(path, node); ok {
		if err := m.set(path, name, vs); err != nil {
			r.note(err)
		}
	}
}

// word reads a node that is one.
func word(node ast.Node) (string, bool) {
	s, ok := node.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return s.Value, true
}

// scalars reads one value or a list of them.
func (r *reader) scalars(path string, node ast.Node) ([]scalar, bool) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		s, ok := r.scalar(path, node)
		return []scalar{s}, ok
	}
	vs := make([]scalar, 0, len(list.Values))
	for i, n := range list.Values {
		s, ok := r.scalar(fmt.Sprintf("%s[%d]", path, i), n)
		if !ok {
			return nil, false
		}
		vs = append(vs, s)
	}
	return vs, true
}

func (r *reader) scalar(path string, node ast.Node) (scalar, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		quoted := n.Token != nil && n.Token.Indicator == token.QuotedScalarIndicator
		return scalar{n.Value, quoted || n.Value == ""}, true
	case *ast.LiteralNode:
		if n.Value != nil {
			return scalar{n.Value.Value, true}, true
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if t := node.GetToken(); t != nil {
			return scalar{text: t.Value}, true
		}
	case *ast.NullNode, nil:
		r.fail(path, nil, "is empty: leave it out for its default")
		return scalar{}, false
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		r.fail(path, node, "is an anchor, alias or tag: these are not read here")
		return scalar{}, false
	}
	r.fail(path, node, "is not a plain value")
	return scalar{}, false
}
