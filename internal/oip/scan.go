package oip

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"millrace/stream/coded"
)

// scanner reads a JSON text once, from left to right, and never beyond the end of buf. path is the present position,
// formatted only for an error.
type scanner struct {
	buf  []byte
	pos  int
	lim  Limits
	path [8]segment
	deep int // used length of path

	// scratch is memory kept by the caller for reuse: for strings with escapes, and for the indexes of nested rows.
	scratch []byte
	rows    []int
}

// segment is one step of a path: a key, or an index if key is "".
type segment struct {
	key string
	i   int
}

func (s *scanner) enter(key string, i int) {
	s.path[s.deep] = segment{key, i}
	s.deep++
}

func (s *scanner) leave() { s.deep-- }

// field returns the path as text, with extra steps appended.
func (s *scanner) field(extra ...segment) string {
	var b []byte
	for _, g := range append(s.path[:s.deep:s.deep], extra...) {
		if g.key == "" {
			b = append(b, index(g.i)...)
			continue
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		b = append(b, g.key...)
	}
	return string(b)
}

// fail returns an error about the present value, or about a part of the value.
func (s *scanner) fail(msg string, extra ...segment) error {
	return &coded.Error{Code: coded.InvalidArgument, Field: s.field(extra...), Msg: msg}
}

// unexpected returns a syntax error at the scanner's position.
func (s *scanner) unexpected(want string) error {
	return s.fail("found " + s.describe(s.pos) + " at byte " + itoa(s.pos) + "; expected " + want)
}

// describe describes the value or character at pos, for an error.
func (s *scanner) describe(pos int) string {
	if pos >= len(s.buf) {
		return "the end of the text"
	}
	switch c := s.buf[pos]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		end := pos
		for end < len(s.buf) && end-pos < 24 && wordByte(s.buf[end]) {
			end++
		}
		return string(s.buf[pos:end])
	case c > ' ' && c < 0x7f:
		return "'" + string(rune(c)) + "'"
	default:
		return "byte 0x" + string(hexDigits[c>>4]) + string(hexDigits[c&15])
	}
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-' || c == '+' || c == '.'
}

func (s *scanner) space() { s.pos = skipSpace(s.buf, s.pos) }

func skipSpace(src []byte, pos int) int {
	for pos < len(src) {
		switch src[pos] {
		case ' ', '\t', '\n', '\r':
			pos++
		default:
			return pos
		}
	}
	return pos
}

// peek returns the character at the scanner, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

// text reads a string. The result is valid UTF-8, a view into the message or into scratch,
// and valid until the next call.
func (s *scanner) text(want string) ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.unexpected(want)
	}
	start := s.pos + 1
	end, escaped, problem := stringEnd(s.buf, start)
	if problem != "" {
		return nil, s.fail("found " + problem + " at byte " + itoa(end))
	}
	raw := s.buf[start:end]
	s.pos = end + 1
	if !utf8.Valid(raw) {
		return nil, s.fail("is not valid UTF-8; expected " + want)
	}
	if !escaped {
		return raw, nil
	}
	out, at, problem := appendUnescaped(s.scratch[:0], raw)
	s.scratch = out
	if problem != "" {
		return nil, s.fail("found " + problem + " at byte " + itoa(start+at))
	}
	return out, nil
}

// openObject reads the opening brace of an object.
func (s *scanner) openObject(want string) error {
	if s.peek() != '{' {
		return s.unexpected(want)
	}
	s.pos++
	return nil
}

// nextKey moves to the value of the next member. At the end of the object nextKey reads the closing brace and done is
// true. first means that no member was read yet. The key is valid until the scanner moves.
func (s *scanner) nextKey(first bool) (key []byte, done bool, err error) {
	s.space()
	if s.peek() == '}' {
		s.pos++
		return nil, true, nil
	}
	if !first {
		if s.peek() != ',' {
			return nil, false, s.unexpected("',' or '}'")
		}
		s.pos++
		s.space()
	}
	if key, err = s.text("a key in quotes"); err != nil {
		return nil, false, err
	}
	s.space()
	if s.peek() != ':' {
		return nil, false, s.unexpected("':' after the key")
	}
	s.pos++
	s.space()
	return key, false, nil
}

// nextItem moves to the next item of an array, after the opening bracket. At the end of the array nextItem reads the
// closing bracket and done is true.
func (s *scanner) nextItem(first bool) (done bool, err error) {
	s.space()
	if s.peek() == ']' {
		s.pos++
		return true, nil
	}
	if !first {
		if s.peek() != ',' {
			return false, s.unexpected("',' or ']'")
		}
		s.pos++
		s.space()
		if s.peek() == ']' {
			return false, s.unexpected("a value after ','")
		}
	}
	return false, nil
}

// literal reads word if the scanner is at word.
func (s *scanner) literal(word string) bool {
	end := s.pos + len(word)
	if end > len(s.buf) || string(s.buf[s.pos:end]) != word || end < len(s.buf) && wordByte(s.buf[end]) {
		return false
	}
	s.pos = end
	return true
}

// skip reads and checks any value. depth is the number of enclosing arrays and objects.
func (s *scanner) skip(depth int) error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.text("a string")
		return err
	case c == '{' || c == '[':
		if depth >= s.lim.MaxDepth {
			return s.fail("is nested more deeply than " + itoa(s.lim.MaxDepth) + " levels")
		}
		s.pos++
		for first := true; ; first = false {
			var done bool
			var err error
			if c == '{' {
				_, done, err = s.nextKey(first)
			} else {
				done, err = s.nextItem(first)
			}
			if done || err != nil {
				return err
			}
			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}
	case c == '-' || c >= '0' && c <= '9':
		_, _, err := s.number()
		return err
	case s.literal("true") || s.literal("false") || s.literal("null"):
		return nil
	}
	return s.unexpected("a value")
}

// number reads the text of a number. integer means without fraction and exponent.
func (s *scanner) number() (text []byte, integer bool, err error) {
	end, integer := numberEnd(s.buf, s.pos)
	if end < 0 {
		return nil, false, s.unexpected("a JSON number")
	}
	text = s.buf[s.pos:end]
	s.pos = end
	return text, integer, nil
}

// numberEnd finds the end of the JSON number at pos, -1 if there is none.
func numberEnd(src []byte, pos int) (end int, integer bool) {
	digits := func() bool {
		from := pos
		for pos < len(src) && src[pos]-'0' <= 9 {
			pos++
		}
		return pos > from
	}
	if pos < len(src) && src[pos] == '-' {
		pos++
	}
	zero := pos < len(src) && src[pos] == '0'
	from := pos
	if !digits() || zero && pos > from+1 {
		return -1, false
	}
	integer = true
	if pos < len(src) && src[pos] == '.' {
		integer = false
		pos++
		if !digits() {
			return -1, false
		}
	}
	if pos < len(src) && src[pos]|0x20 == 'e' {
		integer = false
		pos++
		if pos < len(src) && (src[pos] == '+' || src[pos] == '-') {
			pos++
		}
		if !digits() {
			return -1, false
		}
	}
	if pos < len(src) && wordByte(src[pos]) {
		return -1, false
	}
	return pos, integer
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// skipArray skips the array at the scanner and looks only for brackets and strings. Items are not checked: use
// skipArray only for values that are read later.
func (s *scanner) skipArray() error {
	start, open := s.pos, 0
	src, i := s.buf, s.pos
	for i < len(src) {
		// Brackets and braces have bit 6 set, like e but unlike all other characters of a number; a quote is found by
		// its difference from zero.
		for i+8 <= len(src) {
			w := binary.LittleEndian.Uint64(src[i:])
			q := w ^ ones*'"'
			hit := (w<<1 | (q-ones)&^q) & highs
			if hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		if i >= len(src) {
			break
		}
		switch src[i] {
		case '"':
			end, _, problem := stringEnd(src, i+1)
			if problem != "" {
				return s.fail("found " + problem + " at byte " + itoa(end))
			}
			i = end
		case '[', '{':
			if open++; open > s.lim.MaxDepth {
				return s.fail("is nested more deeply than " + itoa(s.lim.MaxDepth) + " levels")
			}
		case ']', '}':
			if open--; open == 0 {
				s.pos = i + 1
				return nil
			}
		}
		i++
	}
	s.pos = len(src)
	return s.fail("found the end of the text at byte " + itoa(len(src)) +
		"; expected ']' for the array that begins at byte " + itoa(start))
}
