package apps

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream"
)

// This file has the rules for the header of a program's reply. A program is not the server: browsers show its pages
// at the origin of the console, with the cookies of whoever is logged in there.

// sandbox makes browsers give a program's document an opaque origin, without access to the console's origin (HTML
// Standard, 7.6 Sandboxing). Browsers ignore the header for replies other than documents.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// checkHeader returns an error when HTTP does not allow a field of a program's reply (RFC 9110, 5.1 and 5.5).
func checkHeader(program, name, value string) error {
	if name == "" {
		return stream.Errorf(stream.Internal, "", "program %s has answered with a header without a name", program)
	}
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || !isToken[c] {
			return stream.Errorf(stream.Internal, "", "program %s has answered with the header name %.64q, in which "+
				"byte %d cannot be: want letters, digits and hyphens", program, name, i)
		}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return stream.Errorf(stream.Internal, "", "program %s has answered with the header %.64s: %.64q, in "+
				"which byte %d is a control character: remove it", program, name, value, i)
		}
	}
	return nil
}

// isToken has the characters of a token (RFC 9110, 5.6.2).
var isToken = func() (is [0x80]bool) {
	for c := range is {
		is[c] = c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return is
}()

// isForbiddenHeader reports whether the server removes a field because the field affects more than the reply.
// separateOrigin says that programs have an origin of their own, where a program may send CORS fields.
func isForbiddenHeader(name string, separateOrigin bool) bool {
	switch name {
	case "Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Critical-Ch", "Expect-Ct", "Nel", "Origin-Agent-Cluster",
		"Public-Key-Pins", "Public-Key-Pins-Report-Only",
		"Report-To", "Reporting-Endpoints", "Service-Worker-Allowed", "Set-Cookie2", "Set-Login",
		"Strict-Transport-Security",
		"X-Permitted-Cross-Domain-Policies": // of the whole origin or host, also later
		return true
	case "X-Accel-Redirect", "X-Lighttpd-Send-File", "X-Reproxy-Url", "X-Sendfile":
		// orders to a proxy in front of the server
		return true
	case "Refresh", "Timing-Allow-Origin":
		return !separateOrigin
	}
	return strings.HasPrefix(name, "Access-Control-") && !separateOrigin
}

// guard checks the header of a program's reply and limits the effect of the header to the program: see
// docs/security.md.
func (x *Exchange) guard(a *Answer) error {
	name := x.Program.Name
	if err := checkHeader(name, "Content-Type", a.ContentType); err != nil {
		return err
	}
	header := make(map[string]string, len(a.Header)+2)
	a.Cookies = nil
	for _, own := range slices.Sorted(maps.Keys(a.Header)) {
		value := a.Header[own]
		if err := checkHeader(name, own, value); err != nil {
			return err
		}
		key := http.CanonicalHeaderKey(own)
		switch {
		case isForbiddenHeader(key, x.atProgramAddress()):
			x.a.logRemovedHeader(name, key)
		case key == fiber.HeaderSetCookie:
			if c := x.cookie(value); c != "" {
				a.Cookies = append(a.Cookies, c)
			}
		case key == fiber.HeaderContentType:
			a.ContentType = value
		case header[key] != "":
			header[key] += ", " + value
		default:
			header[key] = value
		}
	}
	if !x.atProgramAddress() {
		// Several policies hold together: the program's can only forbid more.
		policy := sandbox
		if more := header[fiber.HeaderContentSecurityPolicy]; more != "" {
			policy += ", " + more
		}
		header[fiber.HeaderContentSecurityPolicy] = policy
	}
	header[fiber.HeaderXContentTypeOptions] = "nosniff"
	a.Header = header
	return nil
}

// atProgramAddress reports whether the request came to the address of programs. Its origin differs from the origin of
// the console.
func (x *Exchange) atProgramAddress() bool {
	return x.Ctx != nil && httpd.ToPrograms(x.Ctx) || x.Ctx == nil && x.atOwn
}

// logRemovedHeader logs once for a program that a field of its replies is not sent.
func (a *Adapter) logRemovedHeader(program, name string) {
	a.statesMu.Lock()
	key := program + "\x00" + name
	_, known := a.warned[key]
	if len(a.warned) < maxWarned {
		a.warned[key] = struct{}{}
	}
	a.statesMu.Unlock()
	if !known {
		a.opts.Log.Warn("a header of a program's replies is not sent, since it is about more than the program: see "+
			"docs/security.md", "program", program, "header", name)
	}
}

// maxWarned is the most programs and names of headers that withheld remembers.
const maxWarned = 1024

// cookiePrefix is in front of the names of a program's cookies, so that no program reads or replaces those of the
// server or of another program.
func cookiePrefix(program string) string {
	return "app." + strings.ReplaceAll(url.QueryEscape(program), ".", "%2E") + "."
}

// cookie returns a cookie of the program (RFC 6265, 4.1) with the program's prefix and path, or "" for a cookie
// without a name.
func (x *Exchange) cookie(value string) string {
	pair, attributes, _ := strings.Cut(value, ";")
	name, content, ok := strings.Cut(pair, "=")
	if name = strings.TrimSpace(name); !ok || name == "" {
		return ""
	}
	base, path := "/apps/"+url.PathEscape(x.Program.Name), "/"
	if x.AtRoot {
		base = ""
	}
	out := cookiePrefix(x.Program.Name) + name + "=" + strings.TrimSpace(content)
	for one := range strings.SplitSeq(attributes, ";") {
		key, v, _ := strings.Cut(strings.TrimSpace(one), "=")
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "path":
			if v = strings.TrimSpace(v); strings.HasPrefix(v, "/") {
				path = v
			}
		case "expires", "max-age", "secure", "httponly", "samesite", "partitioned":
			out += "; " + strings.TrimSpace(one)
		}
	}
	return out + "; Path=" + base + path
}

// cookiesOf returns the cookies of a request for the program: the program's cookies without the prefix, and cookies
// of the client without any program's prefix. The server's session and key, and cookies of other programs, are
// removed.
func (x *Exchange) cookiesOf(header string) string {
	header = withoutPair(withoutPair(header, ";", x.a.opts.Key), ";", x.a.opts.Session)
	prefix, own := cookiePrefix(x.Program.Name), map[string]bool{}
	var kept []string
	for pair := range strings.SplitSeq(header, ";") {
		pair = strings.TrimSpace(pair)
		if name, ok := strings.CutPrefix(pair, prefix); ok {
			kept = append(kept, name)
			name, _, _ = strings.Cut(name, "=")
			own[name] = true
		}
	}
	for pair := range strings.SplitSeq(header, ";") {
		pair = strings.TrimSpace(pair)
		if name, _, _ := strings.Cut(pair, "="); pair != "" && !strings.HasPrefix(pair, "app.") &&
			!own[strings.TrimSpace(name)] {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}
