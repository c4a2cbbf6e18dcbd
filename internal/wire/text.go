package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is the text of one JSON value, without space around it. It is part of a
// text that checkText has found valid, so that walking it needs no checks of
// its syntax.
type value []byte

// checkText says whether text is a JSON object within the bounds and returns it.
func checkText(text []byte, most int) (value, *Error) {
	switch {
	case len(text) > most:
		return nil, &Error{Code: codeTooLarge, Msg: fmt.Sprintf("the text has %d bytes: want at most %d", len(text), most), Err: ErrTextSize}
	case !utf8.Valid(text):
		return nil, fatal(ErrSyntax, codeInvalid, "", "the text is not UTF-8")
	case depth(text) > MaxDepth:
		return nil, invalid(ErrTextDepth, "", fmt.Sprintf("the text is nested deeper than %d levels", MaxDepth))
	case !json.Valid(text):
		var raw json.RawMessage
		return nil, fatal(ErrSyntax, codeInvalid, "", fmt.Sprintf("the text is not JSON: %v", json.Unmarshal(text, &raw)))
	}
	from := skip(text, 0)
	if text[from] != '{' {
		return nil, fatal(ErrSyntax, codeInvalid, "", "the text is no JSON object")
	}
	return text[from:valueEnd(text, from)], nil
}

// depth returns how many arrays and objects of text are open at once. The text
// may be anything.
func depth(text []byte) (most int) {
	open, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			open++
			most = max(most, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return most
}

// skip passes over space and separators.
func skip(text []byte, pos int) int {
	for pos < len(text) {
		switch text[pos] {
		case ' ', '\t', '\n', '\r', ',', ':':
			pos++
		default:
			return pos
		}
	}
	return pos
}

// valueEnd returns where the value that begins at pos ends.
func valueEnd(text []byte, pos int) int {
	open := 0
	for i := pos; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if open == 0 {
				return i + 1
			}
		case '{', '[':
			open++
		case '}', ']':
			if open == 0 { // of what is around a number or a word
				return i
			}
			if open--; open == 0 {
				return i + 1
			}
		case ' ', '\t', '\n', '\r', ',':
			if open == 0 {
				return i
			}
		}
	}
	return len(text)
}

// unquote returns the text of a string.
func (v value) unquote() []byte {
	if !slices.Contains(v, '\\') {
		return v[1 : len(v)-1]
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		panic(err) // a valid text does not come here
	}
	return []byte(s)
}

// next returns the value at or behind pos in an array or object, and where it
// ends; nil at the closing bracket.
func (v value) next(pos int) (value, int) {
	pos = skip(v, pos)
	if v[pos] == '}' || v[pos] == ']' {
		return nil, pos
	}
	end := valueEnd(v, pos)
	return v[pos:end:end], end
}

// members calls each for every member of the object v.
func (v value) members(each func(key []byte, member value) error) error {
	for pos := 1; ; {
		var key, member value
		if key, pos = v.next(pos); key == nil {
			return nil
		}
		member, pos = v.next(pos)
		if err := each(key.unquote(), member); err != nil {
			return err
		}
	}
}

// wrong is the error for a value that is not what is wanted.
func (v value) wrong(want string) error {
	var is string
	switch v[0] {
	case '{':
		is = "an object"
	case '[':
		is = "an array"
	case '"':
		is = strconv.Quote(clip(string(v.unquote())))
	default:
		is = clip(string(v))
	}
	return invalid(ErrValue, "", "is "+is+": want "+want)
}

// field is one field of an object and what reads it.
type field struct {
	name string
	must bool
	seen bool
	read func(value) error
}

func must(name string, read func(value) error) field {
	return field{name: name, must: true, read: read}
}
func may(name string, read func(value) error) field { return field{name: name, read: read} }

// object reads the fields of v. Members that are none of them are ignored. Its
// error names the field.
func (v value) object(fields ...field) error {
	if v[0] != '{' {
		return v.wrong("an object")
	}
	err := v.members(func(key []byte, member value) error {
		for i := range fields {
			f := &fields[i]
			if f.name != string(key) {
				continue
			}
			if f.seen {
				return invalid(ErrTwice, f.name, "comes twice")
			}
			f.seen = true
			return within(f.name, f.read(member))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range fields {
		if f := &fields[i]; f.must && !f.seen {
			return invalid(ErrMissing, f.name, "is missing")
		}
	}
	return nil
}

// each calls read for every item of the array v. Its error names the index.
func (v value) each(read func(value) error) error {
	if v[0] != '[' {
		return v.wrong("an array")
	}
	for i, pos := 0, 1; ; i++ {
		var item value
		if item, pos = v.next(pos); item == nil {
			return nil
		}
		if err := read(item); err != nil {
			return within("["+strconv.Itoa(i)+"]", err)
		}
	}
}

// unsigned reads a whole number from 0 to most.
func unsigned[T int | uint32 | uint64](p *T, most uint64) func(value) error {
	return func(v value) error {
		n, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil || n > most {
			return v.wrong("a whole number from 0 to " + strconv.FormatUint(most, 10))
		}
		*p = T(n)
		return nil
	}
}

func sidInto(p *uint32) func(value) error { return unsigned(p, math.MaxUint32) }
func seqInto(p *uint64) func(value) error { return unsigned(p, math.MaxUint64) }

// optional reads with read into a new *p.
func optional[T any](p **T, read func(*T) func(value) error) func(value) error {
	return func(v value) error {
		*p = new(T)
		return read(*p)(v)
	}
}

func signed(p *int64) func(value) error {
	return func(v value) (err error) {
		if *p, err = strconv.ParseInt(string(v), 10, 64); err != nil {
			return v.wrong("a whole number of 64 bits")
		}
		return nil
	}
}

// fraction reads 0 or a number from least to most.
func fraction(p *float64, least, most float64) func(value) error {
	return func(v value) error {
		f, err := v.float()
		if err != nil || f != 0 && !(f >= least && f <= most) {
			return v.wrong(fmt.Sprintf("0 or a number from %v to %v", least, most))
		}
		*p = f
		return nil
	}
}

func (v value) float() (float64, error) {
	if c := v[0]; c != '-' && (c < '0' || c > '9') {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(string(v), 64)
}

func boolean(p *bool) func(value) error {
	return func(v value) error {
		if v[0] != 't' && v[0] != 'f' {
			return v.wrong("true or false")
		}
		*p = v[0] == 't'
		return nil
	}
}

// words reads a string of at least least and at most most bytes.
func words(p *string, least, most int) func(value) error {
	return func(v value) error {
		if v[0] != '"' {
			return v.wrong("a string")
		}
		s := v.unquote()
		if len(s) < least || len(s) > most {
			return v.wrong(fmt.Sprintf("a string of %d to %d bytes", least, most))
		}
		*p = string(s)
		return nil
	}
}

func oneOf(p *string, allowed ...string) func(value) error {
	return func(v value) error {
		if v[0] == '"' {
			if i := slices.Index(allowed, string(v.unquote())); i >= 0 {
				*p = allowed[i]
				return nil
			}
		}
		return v.wrong("one of " + strings.Join(allowed, ", "))
	}
}

// raw keeps a value's text, which begins with open.
func raw(p *json.RawMessage, open byte, want string) func(value) error {
	return func(v value) error {
		if v[0] != open {
			return v.wrong(want)
		}
		*p = json.RawMessage(v)
		return nil
	}
}
