package oip

import (
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// plain is true for the bytes that need no escape in a JSON string.
var plain = func() (yes [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		yes[c] = c != '"' && c != '\\'
	}
	return yes
}()

// AppendString appends s as a JSON string. The result is always valid UTF-8: an invalid byte of s becomes U+FFFD. The
// line separators U+2028 and U+2029 are escaped, because some JSON parsers fail on them.
func AppendString(dst []byte, s string) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped is AppendString without the quotes.
func appendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			if start < i {
				dst = append(dst, s[start:i]...)
			}
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...)
			start = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + n
		}
		i += n
	}
	return append(dst, s[start:]...)
}

// stringEnd finds the closing quote of the string whose first character, after the opening quote, is src[pos].
// escaped means that the string contains a backslash. problem is "" or the reason why the search ended.
func stringEnd(src []byte, pos int) (end int, escaped bool, problem string) {
	for i := pos; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			return i, escaped, ""
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return i, escaped, "a control character in a string; expected it escaped"
		}
	}
	return len(src), escaped, "the end of the text in a string; expected a closing quote"
}

// appendUnescaped appends the text of a JSON string without its quotes. problem is "" or the error at the position
// at. Half of a surrogate pair is an error, since a replacement would silently change data.
func appendUnescaped(dst, s []byte) (out []byte, at int, problem string) {
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		if i+1 >= len(s) {
			return dst, i, "an unfinished escape"
		}
		switch s[i+1] {
		case '"', '\\', '/':
			dst = append(dst, s[i+1])
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, ok := hex4(s[i+2:])
			if !ok {
				return dst, i, "an escape \\u without four hexadecimal digits"
			}
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if len(s) >= i+12 && s[i+6] == '\\' && s[i+7] == 'u' {
					low, ok = hex4(s[i+8:])
				}
				r = utf16.DecodeRune(r, low)
				if !ok || r == utf8.RuneError {
					return dst, i, "half of a surrogate pair; send such bytes as binary data"
				}
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
			i += 4
		default:
			return dst, i, "an unknown escape"
		}
		i += 2
	}
	return dst, 0, ""
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
