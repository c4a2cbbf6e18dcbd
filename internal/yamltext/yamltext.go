// Package yamltext parses YAML. Only this package calls the parser: yamltext bounds the size, the depth and the
// number of tokens of a text before parsing, and the expansion of aliases. The package must not know the purpose of a
// text.
package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// Bounds of every text. The parser's memory grows with the square of the depth: 30 KB of "[" take 1.5 GB.
const (
	maxDepth = 64     // nesting of sections and lists
	maxNodes = 200000 // values, with aliases expanded
)

// MaxSettings bounds a text of settings.
var MaxSettings = Limit{Bytes: 1 << 20, Tokens: 400000}

// Limit bounds a text.
type Limit struct {
	Bytes  int
	Tokens int // names, values and signs; the parser takes about 400 bytes for each
}

// Error describes a fault in a text, without values of the text.
type Error struct {
	Line   int // 0 = unknown
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

func fail(line int, format string, args ...any) error {
	return &Error{line, fmt.Sprintf(format, args...)}
}

// mark is the byte order mark of UTF-8, written by some editors at the beginning of a file.
var mark = []byte("\xef\xbb\xbf")

// WithoutMark returns text without a byte order mark.
func WithoutMark(text []byte) []byte { return bytes.TrimPrefix(text, mark) }

// Blank reports whether text has nothing but comments, blank lines and marks of documents.
func Blank(text []byte) bool {
	for line := range bytes.Lines(WithoutMark(text)) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" && string(line) != "..." {
			return false
		}
	}
	return true
}

// Parse returns the documents of a text. An error is an *Error.
func Parse(text []byte, most Limit) (*ast.File, error) {
	text = WithoutMark(text)
	aliases, err := check(text, most)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, plain(err)
	}
	if aliases {
		c := counter{anchors: map[string]int{}}
		total := 0
		for _, d := range file.Docs {
			total = c.sum(total, c.nodes(d.Body))
		}
		if c.err != nil {
			return nil, c.err
		}
	}
	return file, nil
}

// checkValues returns an error that names the first key without a value: a file cut after the key, or a forgotten
// value, must not pass for an empty value.
func checkValues(file *ast.File) error {
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		for _, n := range ast.Filter(ast.MappingValueType, d.Body) {
			if m, ok := n.(*ast.MappingValueNode); ok && Null(m.Value) {
				t := m.Key.GetToken()
				return fail(t.Position.Line, "%.40[1]s: has no value: write %.40[1]s: [] for an empty list or "+
					"%.40[1]s: {} for an empty section, or leave the key out", t.Value)
			}
		}
	}
	return nil
}

// Null reports whether a key has no value, or null.
func Null(value ast.Node) bool {
	_, null := value.(*ast.NullNode)
	return null || value == nil
}

// Decode reads a text of one document into v, like yaml.Unmarshal. With strict, keys unknown to v, and keys without a
// value, are errors. An empty text leaves v unchanged.
func Decode(text []byte, most Limit, v any, strict bool) error {
	var options []yaml.DecodeOption
	if strict {
		options = append(options, yaml.Strict())
	}
	return decode(text, most, v, strict, options...)
}

// Ordered is a section with its keys in the order of the text.
type Ordered = yaml.MapSlice

// DecodeOrdered returns the value of a text of one document. Sections are of type Ordered.
func DecodeOrdered(text []byte, most Limit) (v any, err error) {
	err = decode(text, most, &v, false, yaml.UseOrderedMap())
	return v, err
}

func decode(text []byte, most Limit, v any, strict bool, options ...yaml.DecodeOption) error {
	text = WithoutMark(text)
	file, err := Parse(text, most)
	if err == nil && strict {
		err = checkValues(file)
	}
	if err != nil {
		return err
	}
	err = yaml.NewDecoder(bytes.NewReader(text), options...).Decode(v)
	if err != nil && !errors.Is(err, io.EOF) {
		return plain(err)
	}
	return nil
}

// Encode writes v as YAML.
func Encode(v any) ([]byte, error) { return yaml.Marshal(v) }

// plain returns the parser's error without quoted lines of the text.
func plain(err error) error {
	var e yaml.Error
	if errors.As(err, &e) {
		line := 0
		if t := e.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
		return &Error{line, e.GetMessage()}
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{0, first}
}

// check checks the tokens of a text one by one, and reports whether there are aliases.
func check(text []byte, most Limit) (aliases bool, err error) {
	if len(text) > most.Bytes {
		return false, fail(0, "has %d bytes: want at most %d", len(text), most.Bytes)
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return false, fail(1+bytes.Count(text[:i], []byte("\n")),
			"has a zero byte: the file may be damaged, or still be written")
	}
	var s scanner.Scanner
	s.Init(string(text))
	var d depth
	for n := 0; ; {
		tokens, err := s.Scan()
		if n += len(tokens); n > most.Tokens {
			return aliases, fail(0, "has more than %d names and values", most.Tokens)
		}
		for _, t := range tokens {
			aliases = aliases || t.Type == token.AliasType
			if d.next(t) > maxDepth {
				return aliases, fail(t.Position.Line, "has more than %d sections and lists inside each other", maxDepth)
			}
		}
		if err != nil { // also io.EOF; a syntax error is the parser's to report
			return aliases, nil
		}
	}
}

// depth counts the sections and lists open at a token.
type depth struct {
	flow    int   // brackets
	columns []int // of the signs and names outside brackets, from left to right
	pending int   // tags, anchors, and signs such as - and ? in this line: the parser descends into each
	line    int
	before  *token.Token
}

// next returns the depth after a token, at least the depth of the parser's descent.
func (d *depth) next(t *token.Token) int {
	before := d.before
	d.before = t
	if t.Position.Line != d.line {
		d.line, d.pending = t.Position.Line, 0
	}
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		d.flow++
	case token.SequenceEndType, token.MappingEndType:
		d.flow = max(0, d.flow-1)
	case token.DocumentHeaderType, token.DocumentEndType:
		d.flow, d.columns = 0, d.columns[:0]
	case token.TagType, token.AnchorType:
		d.pending++
	case token.SequenceEntryType, token.MappingKeyType:
		if d.flow == 0 {
			d.at(t.Position.Column)
		} else {
			d.pending++
		}
	case token.MappingValueType:
		switch {
		case d.flow > 0:
			d.pending++
		case before != nil && before.Position.Line == t.Position.Line:
			d.at(before.Position.Column)
		default:
			d.at(t.Position.Column)
		}
	case token.CollectEntryType:
		d.pending = 0
	}
	return d.flow + len(d.columns) + d.pending
}

func (d *depth) at(column int) {
	for len(d.columns) > 0 && d.columns[len(d.columns)-1] >= column {
		d.columns = d.columns[:len(d.columns)-1]
	}
	d.columns = append(d.columns, column)
}

// counter counts values with each alias expanded.
type counter struct {
	anchors map[string]int // values behind each
	err     error
}

func (c *counter) sum(a, b int) int {
	if a > maxNodes-b && c.err == nil {
		c.err = fail(0, "has more than %d values when aliases (*NAME) are replaced by what they stand for", maxNodes)
	}
	return min(a+b, math.MaxInt32)
}

func (c *counter) nodes(n ast.Node) int {
	if c.err != nil {
		return 0
	}
	total := 1
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			total = c.sum(total, c.nodes(v))
		}
	case *ast.MappingValueNode:
		total = c.sum(c.nodes(n.Key), c.nodes(n.Value))
	case *ast.MappingKeyNode:
		total = c.nodes(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			total = c.sum(total, c.nodes(v))
		}
	case *ast.TagNode:
		total = c.nodes(n.Value)
	case *ast.AnchorNode:
		total = c.nodes(n.Value)
		c.anchors[n.Name.GetToken().Value] = total
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		known, ok := c.anchors[name]
		if !ok && c.err == nil {
			c.err = fail(n.GetToken().Position.Line, "has the alias *%.40s before the end of its anchor", name)
		}
		total = known
	}
	return total
}
