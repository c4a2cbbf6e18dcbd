package httpd_test

import (
	"io"
	"strings"
	"testing"

	"millrace/internal/httpd"
)

// Requests that a proxy in front of the server may read differently are refused, without repeating their bytes in the
// reply, and the following bytes on the connection are not read as a request.
func TestAmbiguousRequests(t *testing.T) {
	s := serve(t, httpd.Config{}, echo)
	const (
		follows = "GET /hello HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
		chunked = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
	)
	for name, c := range map[string]struct {
		head   string
		status int
		says   string
	}{
		"length and coding": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
			"40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "exclude each other"},
		"coding and length": {"POST /echo HTTP/1.1\r\nHost: localhost\r\ntransfer-encoding: " +
			"chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400, "exclude each other"},
		"unknown coding": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"xchunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding"},
		"identity": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"identity\r\nContent-Length: 2\r\n\r\nab", 501, "Transfer-Encoding"},
		"two codings": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, " +
			"chunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding"},
		"coding twice": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "Transfer-Encoding is there twice"},
		"coding of HTTP/1.0": {"POST /echo HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n\r\n", 400, "HTTP/1.0 has no"},
		"coding with a space": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : " +
			"chunked\r\nContent-Length: 2\r\n\r\nab", 400, ""},
		"length twice": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: " +
			"3\r\n\r\nabc", 400, "Content-Length is there twice"},
		"same length twice": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: " +
			"2\r\n\r\nab", 400, "Content-Length is there twice"},
		"length list": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2\r\n\r\nab", 400,
			""},
		"signed length": {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\nab", 400, ""},
		"empty length":  {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\n", 400, ""},
		"host twice": {"GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400,
			"Host is there twice"},
		"no host":       {"GET /hello HTTP/1.1\r\nAccept: */*\r\n\r\n", 400, "Host is missing"},
		"LF":            {"GET /hello HTTP/1.1\nHost: localhost\n\n", 400, "CR LF"},
		"one LF":        {"GET /hello HTTP/1.1\r\nHost: localhost\nContent-Length: 0\r\n\r\n", 400, "CR LF"},
		"LF at the end": {"GET /hello HTTP/1.1\r\nHost: localhost\r\n\n", 400, "CR LF"},
		"CR within": {"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\rContent-Length: 3\r\n\r\n", 400,
			"CR LF"},
		"NUL": {"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400, "NUL"},
		"continued line": {"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\r\n Content-Length: 3\r\n\r\n",
			400, ""},
		"no colon":                {"GET /hello HTTP/1.1\r\nHost: localhost\r\nsecret\r\n\r\n", 400, ""},
		"version 9.9":             {"GET /hello HTTP/9.9\r\nHost: localhost\r\n\r\n", 505, "neither HTTP/1.1 nor"},
		"version 2":               {"GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "neither HTTP/1.1 nor"},
		"lower case version":      {"GET /hello http/1.1\r\nHost: localhost\r\n\r\n", 505, "neither HTTP/1.1 nor"},
		"space in the target":     {"GET /hello there HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "the target"},
		"no target":               {"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, ""},
		"no method":               {"secret\r\nHost: localhost\r\n\r\n", 400, ""},
		"a chunk without its end": {chunked + "2\r\nabsecret\r\n0\r\n\r\n", 400, "CR LF"},
		"a size that is no size":  {chunked + "secret\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a size with 0x":          {chunked + "0x2\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a length as trailer":     {chunked + "2\r\nab\r\n0\r\nContent-Length: 5\r\n\r\n", 400, "trailers"},
		"a trailer without name":  {chunked + "2\r\nab\r\n0\r\n : x\r\n\r\n", 400, "trailers"},
		"a trailer":               {chunked + "2\r\nab\r\n0\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n", 400, "trailers"},
		"a trailer with LF":       {chunked + "2\r\nab\r\n0\r\nX: y\n\r\n", 400, "trailers"},
		"a cut trailer":           {chunked + "2\r\nab\r\n0\r\nX: y\r\n", 400, "trailers"},
		"LF at the end of chunks": {chunked + "2\r\nab\r\n0\r\n\n", 400, "CR LF"},
		"an extension":            {chunked + "2;a=b\r\nab\r\n0\r\n\r\n", 400, "extension"},
		"an extension with LF":    {chunked + "2;a\nb\r\nab\r\n0\r\n\r\n", 400, "extension"},
		"a long extension": {chunked + "2;" + strings.Repeat("a", 20<<10) + "\r\nab\r\n0\r\n\r\n", 400,
			"16 digits"},
		"a size with a space": {chunked + "2 \r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a size with LF":      {chunked + "2\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a size with CR":      {chunked + "2\rab\r\n0\r\n\r\n", 400, "CR LF"},
		"no size":             {chunked + "\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a signed size":       {chunked + "+2\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"17 digits":           {chunked + "00000000000000002\r\nab\r\n0\r\n\r\n", 400, "16 digits"},
		"a size of 64 bits":   {chunked + "8000000000000000\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
		"a chunk with LF":     {chunked + "2\r\nab\n0\r\n\r\n", 400, "CR LF"},
		"chunks in a coding": {strings.Replace(chunked, "Host", "Content-Encoding: gzip\r\nHost", 1) +
			"secret\r\nab\r\n0\r\n\r\n", 400, "hexadecimal"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.dial(t)
			p.send(c.head + follows)
			a := p.receive()
			if a.StatusCode != c.status || !strings.Contains(a.Error, c.says) || a.Code != "invalid_argument" {
				t.Errorf("%d %s", a.StatusCode, a.body)
			}
			if strings.Contains(a.body, "secret") || strings.Contains(a.body, "localhost") {
				t.Errorf("the reply has bytes of the request: %s", a.body)
			}
			if rest, _ := io.ReadAll(p.r); len(rest) > 0 { // an error if the server has reset the connection
				t.Errorf("the connection goes on: %q", rest)
			}
		})
	}
	for name, text := range map[string]string{
		"plain":    "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"HTTP/1.0": "GET /hello HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
		"chunks": "POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: " +
			"Chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"long sizes": chunked + "0000000000000002\r\nab\r\n00a\r\n0123456789\r\n000\r\n\r\n",
		"no chunks":  chunked + "0\r\n\r\n",
		"odd headers": "GET /hello HTTP/1.1\r\nX-~a!: \tv\xffw \r\nEmpty:\r\nHost:localhost\r\nContent-Length: 0 " +
			"\r\n\r\n",
	} {
		p := s.dial(t)
		p.send(text + follows)
		for range 2 {
			if a := p.receive(); a.StatusCode != 200 {
				t.Errorf("%s: %d %s", name, a.StatusCode, a.body)
			}
		}
	}
}
