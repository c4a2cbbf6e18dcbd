package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// value is the text of one JSON value, without surrounding space. value is part of a text checked by checkText, so
// that the functions here do not check the syntax again.
type value []byte

// checkText returns text if text is a JSON object of at most most bytes and at most MaxDepth levels of nesting.
func checkText(text []byte, most int) (value, *Error) {
	switch {
	case len(text) > most:
		return nil, tooLarge(ErrTextSize, "", fmt.Sprintf("the text has %d bytes: want at most %d", len(text), most))
	case !utf8.Valid(text):
		return nil, fatal(ErrSyntax, codeInvalid, "", "the text is not UTF-8")
	case depth(text) > MaxDepth:
		return nil, invalid(ErrTextDepth, "", fmt.Sprintf("the text is nested more deeply than %d levels", MaxDepth))
	case !json.Valid(text):
		var raw json.RawMessage
		return nil, fatal(ErrSyntax, codeInvalid, "",
			fmt.Sprintf("the text is not JSON: %v", json.Unmarshal(text, &raw)))
	}
	from := skip(text, 0)
	if text[from] != '{' {
		return nil, fatal(ErrSyntax, codeInvalid, "", "the text is not a JSON object")
	}
	return text[from:valueEnd(text, from)], nil
}

// depth returns the largest nesting of arrays and objects of text; text need not be valid.
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

// skip returns the position of the first character from pos that is neither space nor a separator.
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

// valueEnd returns the end of the value at pos.
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
			if open == 0 { // the bracket closes the array or object around a number or a literal
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
		panic(err) // checkText has checked the string
	}
	return []byte(s)
}

// next returns the next value from pos in an array or object, and the value's end; nil at the closing bracket.
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
	if v[0] != '{' {
		return v.wrong("an object")
	}
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

// items calls each for every item of the array v. The error has the index.
func (v value) items(each func(i int, item value) error) error {
	if v[0] != '[' {
		return v.wrong("an array")
	}
	for i, pos := 0, 1; ; i++ {
		var item value
		if item, pos = v.next(pos); item == nil {
			return nil
		}
		if err := each(i, item); err != nil {
			return prefixField("["+strconv.Itoa(i)+"]", err)
		}
	}
}

// wrong returns the error of a value other than wanted.
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

// float reads a JSON number.
func (v value) float() (float64, error) {
	if c := v[0]; c != '-' && (c < '0' || c > '9') {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(string(v), 64)
}
