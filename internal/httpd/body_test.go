package httpd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// Each failure to read a body has its code, and the error of a short body says what length was announced.
func TestErrorsOfBodies(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err  error
		n    int
		code coded.Code
		text string
	}{
		{io.EOF, 7, coded.InvalidArgument, "the body ended before the 7 bytes that Content-Length announced"},
		{io.ErrUnexpectedEOF, 0, coded.InvalidArgument,
			"the body ended before the 0 bytes that Content-Length announced"},
		{io.ErrUnexpectedEOF, -1, coded.InvalidArgument, "the body ended before its last chunk"},
		{fmt.Errorf("bytes of the client"), -1, coded.InvalidArgument,
			"the body cannot be read: the connection has failed"},
		{fmt.Errorf("bytes of the client"), 7, coded.InvalidArgument,
			"the body cannot be read: the connection has failed"},
		{timeout, 7, coded.Timeout, "the body did not arrive in time"},
	} {
		err := readError(c.err, c.n)
		if coded.CodeOf(err) != c.code || err.Error() != c.text || !errors.Is(err, ErrIncomplete) {
			t.Errorf("%v of %d: %s %q, incomplete %v", c.err, c.n, coded.CodeOf(err), err,
				errors.Is(err, ErrIncomplete))
		}
	}
	for _, c := range []struct {
		media string
		n     int
		want  string
	}{
		{"", -1, "request size exceeds the maximum allowed input size of 5 bytes (limits.max_body)"},
		{"application/json; charset=utf-8", -1,
			"request JSON size exceeds the maximum allowed input size of 5 bytes (limits.max_body)"},
		{"text/plain", 0,
			"request size of 0 bytes exceeds the maximum allowed input size of 5 bytes (limits.max_body)"},
		{"application/json", 6, "request JSON size of 6 bytes exceeds the maximum allowed input size of 5 bytes " +
			"(limits.max_body)"},
	} {
		var h fasthttp.RequestHeader
		h.SetContentType(c.media)
		if err := tooLarge(&h, c.n, 5); coded.CodeOf(err) != coded.TooLarge || err.Error() != c.want {
			t.Errorf("%d: %v", c.n, err)
		}
	}
}

// TestRulesOfHosts: the names of a server follow from its bound address and its settings.
func TestRulesOfHosts(t *testing.T) {
	machine, _ := os.Hostname()
	for bound, local := range map[string]bool{"": true, "0.0.0.0": true, "::": true, "127.0.0.1": false,
		"192.0.2.7": false, "Mill.example": false} {
		r, err := newRules(bound, nil, nil)
		if err != nil || machine != "" && !r.hosts[machine] || r.anyHost || r.anyOrigin {
			t.Errorf("%q: %+v, %v", bound, r, err)
		}
		if !local && !r.hosts[map[string]string{"Mill.example": "mill.example"}[bound]] && !r.hosts[bound] {
			t.Errorf("%q is not its own name: %+v", bound, r.hosts)
		}
		if local && r.hosts[""] {
			t.Errorf("%q: no name is a name", bound)
		}
	}
	for host, want := range map[string]string{
		"a": "a", "a:1": "a", ":1": "", "": "", "[::1]": "::1", "[::1]:8": "::1", "[::1]x": "", "[::1": "", "[]": "",
		"::1": "::1", "a:": "a", "::": "::",
	} {
		if got := hostName(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
	for _, bad := range []string{"", "a/b", "me@a", "a*", "a b", ":80"} {
		if _, err := newRules("", []string{bad}, nil); err == nil {
			t.Errorf("the host %q is taken", bad)
		}
	}
	for _, bad := range []string{"mill.example", "https://", "https://mill.example/x", "https://mill.example?x",
		"https://me@mill.example", "//mill.example", "https:mill", ":x"} {
		if _, err := newRules("", nil, []string{bad}); err == nil {
			t.Errorf("the origin %q is taken", bad)
		}
	}
	r, err := newRules("", []string{"*", "Other.example:80"}, []string{"*", "HTTPS://Mill.example:8443/"})
	if err != nil || !r.anyHost || !r.anyOrigin || !r.hosts["other.example"] ||
		!r.origins["https://mill.example:8443"] {
		t.Errorf("%+v, %v", r, err)
	}
}

// A client has some time for any body, and more for a large body.
func TestTimeOfBodies(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 15 * time.Second, 32<<10 - 1: 15 * time.Second,
		32 << 10: 16 * time.Second, 90 * 32 << 10: 105 * time.Second} {
		if got := ArrivalTime(n); got != want {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
}
