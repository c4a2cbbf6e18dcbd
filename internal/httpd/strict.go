package httpd

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// strict returns an error for the head of a request that programs read in different ways, so that a proxy in front of
// the server could take a part of the head for another request (RFC 9112, sections 2.2, 5.1, 6.1, 6.3 and 11.2; RFC
// 9110, section 7.2). fasthttp accepts such requests. The error contains no bytes of the request.
//
// A request line without CR at its end is accepted: all programs read such a line in the same way.
func strict(h *fasthttp.RequestHeader) error {
	bad := func(what string) error {
		return coded.Errorf(coded.InvalidArgument, "", "the request is not correct HTTP/1.1: %s", what)
	}
	proto := h.Protocol()
	if string(proto) != "HTTP/1.1" && string(proto) != "HTTP/1.0" {
		return WithStatus(fasthttp.StatusHTTPVersionNotSupported, bad("the version is neither HTTP/1.1 nor HTTP/1.0"))
	}
	for _, c := range h.RequestURI() {
		if c <= ' ' || c == 0x7f {
			return bad("the target has a space or a control character")
		}
	}
	raw := h.RawHeaders()
	if bytes.IndexByte(raw, 0) >= 0 {
		return bad("a header has a NUL")
	}
	var hosts, lengths, codings int
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || bytes.IndexByte(raw[:end], '\r') != end-1 {
			return bad("a line of the header does not end with CR LF, or has another CR")
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 { // the end of the header
			continue
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 {
			return bad("a line of the header has no name and colon, or continues the line before it")
		}
		for _, c := range line[:colon] {
			if !nameBytes[c] {
				return bad("the name of a header has a space or another character that names do not have")
			}
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		switch {
		case isHeader(name, "Host"):
			hosts++
		case isHeader(name, "Content-Length"):
			lengths++
			for _, c := range value {
				if c < '0' || c > '9' {
					return bad("Content-Length is not a number")
				}
			}
			if len(value) == 0 {
				return bad("Content-Length is empty")
			}
		case isHeader(name, "Transfer-Encoding"):
			codings++
			if !bytes.EqualFold(value, []byte("chunked")) {
				return WithStatus(fasthttp.StatusNotImplemented, bad("Transfer-Encoding is not chunked"))
			}
		}
	}
	switch {
	case hosts > 1:
		return bad("Host is there twice")
	case hosts == 0 && proto[7] == '1':
		return bad("Host is missing")
	case lengths > 1:
		return bad("Content-Length is there twice")
	case codings > 1:
		return bad("Transfer-Encoding is there twice")
	case codings > 0 && lengths > 0:
		return bad("Content-Length and Transfer-Encoding exclude each other")
	case codings > 0 && proto[7] == '0':
		return bad("HTTP/1.0 has no Transfer-Encoding")
	}
	return nil
}

// isHeader reports whether name is the name of the header.
func isHeader(name []byte, header string) bool {
	return len(name) == len(header) && bytes.EqualFold(name, []byte(header))
}

// nameBytes are the characters of names (RFC 9110, section 5.6.2).
var nameBytes = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' && c < 0x80 ||
			bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
	}
	return t
}()
