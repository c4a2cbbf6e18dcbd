package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// scanner reads a JSON text of a child once, from left to right. Strings that recur in every message, such as the
// names of outputs, are allocated once.
type scanner struct {
	buf   []byte
	pos   int
	names map[string]string // strings seen, at most maxNames
}

const (
	maxNames = 256
	maxDepth = 32 // of skipped values
)

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: "+format, append([]any{s.pos}, args...)...)
}

func (s *scanner) peek() byte {
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; c {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return s.fail("expected %q", c)
	}
	s.pos++
	return nil
}

// object calls member for each member of an object, with the key, which is valid until the next read of a string.
// member reads the value.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.fail("expected ',' or '}'")
		}
	}
}

// array calls element for each element of an array.
func (s *scanner) array(element func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.fail("expected ',' or ']'")
		}
	}
}

// text reads a string. The result is valid until buf changes.
func (s *scanner) text() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("expected a string")
	}
	start, escaped := s.pos, false
	for i := start + 1; i < len(s.buf); i++ {
		switch c := s.buf[i]; {
		case c == '"':
			s.pos = i + 1
			raw := s.buf[start+1 : i]
			if !escaped && utf8.Valid(raw) {
				return raw, nil
			}
			var out string
			if err := json.Unmarshal(s.buf[start:i+1], &out); err != nil {
				s.pos = start
				return nil, s.fail("a string that is not JSON")
			}
			return []byte(out), nil
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			s.pos = i
			return nil, s.fail("a control character in a string")
		}
	}
	return nil, s.fail("a string that does not end")
}

// name reads a recurring string.
func (s *scanner) name() (string, error) {
	b, err := s.text()
	if err != nil {
		return "", err
	}
	if known, ok := s.names[string(b)]; ok {
		return known, nil
	}
	text := string(b)
	if len(s.names) < maxNames {
		if s.names == nil {
			s.names = make(map[string]string)
		}
		s.names[text] = text
	}
	return text, nil
}

// str reads a string to keep.
func (s *scanner) str() (string, error) {
	b, err := s.text()
	return string(b), err
}

// count reads an integer from 0 to math.MaxInt.
func (s *scanner) count() (n int, err error) {
	c := s.peek()
	start := s.pos
	if c < '0' || c > '9' {
		return 0, s.fail("expected an integer that is not negative")
	}
	for ; s.pos < len(s.buf); s.pos++ {
		c := s.buf[s.pos]
		if c < '0' || c > '9' {
			break
		}
		if n > (math.MaxInt-int(c-'0'))/10 {
			return 0, s.fail("a number that is too large")
		}
		n = 10*n + int(c-'0')
	}
	switch {
	case s.pos < len(s.buf) && (s.buf[s.pos] == '.' || s.buf[s.pos]|0x20 == 'e'):
		return 0, s.fail("expected an integer")
	case c == '0' && s.pos > start+1:
		return 0, s.fail("a number with a leading zero, which JSON does not have")
	}
	return n, nil
}

var errType = errors.New("expected a string, a number, true or false")

// value reads a string, number or bool, as parameters have.
func (s *scanner) value() (any, error) {
	switch c := s.peek(); {
	case c == '"':
		return s.str()
	case c == 't' || c == 'f':
		return s.boolean()
	case c == '-' || c >= '0' && c <= '9':
		start := s.pos
		for s.pos < len(s.buf) && isNumber(s.buf[s.pos]) {
			s.pos++
		}
		text := string(s.buf[start:s.pos])
		if !json.Valid(s.buf[start:s.pos]) {
			s.pos = start
			return nil, s.fail("%q is not a number in JSON", text)
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			s.pos = start
			return nil, s.fail("%q is not a number", text)
		}
		return f, nil
	}
	return nil, s.fail("%w", errType)
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c|0x20 == 'e'
}

func (s *scanner) boolean() (bool, error) {
	for _, w := range [...]string{"true", "false"} {
		if s.peek() == w[0] && len(s.buf)-s.pos >= len(w) && string(s.buf[s.pos:s.pos+len(w)]) == w {
			s.pos += len(w)
			return w == "true", nil
		}
	}
	return false, s.fail("expected true or false")
}

// null reports whether the next value is null, and then reads the value.
func (s *scanner) null() bool {
	if s.peek() == 'n' && len(s.buf)-s.pos >= 4 && string(s.buf[s.pos:s.pos+4]) == "null" {
		s.pos += 4
		return true
	}
	return false
}

// end reports an error unless nothing follows.
func (s *scanner) end() error {
	if s.peek() != 0 || s.pos < len(s.buf) {
		return s.fail("more after the end of the object")
	}
	return nil
}
