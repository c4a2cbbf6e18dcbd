package httpd

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// rules say which requests are answered at all. A web page that a user visits
// can send requests to this machine, under the page's own name when that name
// resolves here, so the Host header must be a name that is ours, and requests
// that change something must not come from another site. Programs send no
// Origin and are not concerned.
type rules struct {
	anyHost   bool
	hosts     map[string]bool // lower case, no port, no brackets
	local     bool            // bound to every address: the one a connection came in by counts as ours
	anyOrigin bool
	origins   map[string]bool // scheme://host[:port], lower case
}

func newRules(bound string, hosts, origins []string) (rules, error) {
	r := rules{hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}, origins: map[string]bool{}}
	if ip, err := netip.ParseAddr(bound); bound == "" || err == nil && ip.IsUnspecified() {
		r.local = true
	} else {
		r.hosts[strings.ToLower(bound)] = true
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		r.hosts[strings.ToLower(name)] = true
	}
	for _, h := range hosts {
		if h == "*" {
			r.anyHost = true
			continue
		}
		name := hostName(strings.ToLower(h))
		if name == "" || strings.ContainsAny(name, "/@* ") {
			return r, fmt.Errorf("hosts: %q is not the name of a host: want a name or an address, or * for any", h)
		}
		r.hosts[name] = true
	}
	for _, o := range origins {
		if o == "*" {
			r.anyOrigin = true
			continue
		}
		u, err := url.Parse(strings.ToLower(strings.TrimSuffix(o, "/")))
		if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			return r, fmt.Errorf("origins: %q is not a web origin: want https://name[:port], or * for any", o)
		}
		r.origins[u.Scheme+"://"+u.Host] = true
	}
	return r, nil
}

// hostName cuts the port and the brackets off.
func hostName(host string) string {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end > 0 && (end+1 == len(host) || host[end+1] == ':') {
			return host[1:end]
		}
		return ""
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		if strings.IndexByte(host[i+1:], ':') >= 0 {
			return host // an IPv6 address without brackets
		}
		return host[:i]
	}
	return host
}

func (r *rules) check(c *fasthttp.RequestCtx) error {
	if !r.hostAllowed(c) {
		return coded.Errorf(coded.PermissionDenied, "", "the Host %.256q is not a name of this server: add it to hosts", c.Request.Header.Host())
	}
	switch string(c.Method()) {
	case "GET", "HEAD", "OPTIONS":
		return nil
	}
	if !r.originAllowed(c) {
		return coded.Errorf(coded.PermissionDenied, "", "requests from the web origin %.256q may not change anything here: add it to origins", c.Request.Header.Peek("Origin"))
	}
	return nil
}

func (r *rules) hostAllowed(c *fasthttp.RequestCtx) bool {
	if r.anyHost {
		return true
	}
	if !r.ours(c, c.Request.Header.Host()) {
		return false
	}
	// A request line with a whole URL names the host once more.
	uri := c.Request.Header.RequestURI()
	return len(uri) > 0 && uri[0] == '/' || r.ours(c, c.Request.URI().Host())
}

func (r *rules) ours(c *fasthttp.RequestCtx, host []byte) bool {
	if r.hosts[string(host)] { // without a port, which needs no copy
		return len(host) > 0
	}
	name := hostName(strings.ToLower(string(host)))
	if r.hosts[name] {
		return true
	}
	if !r.local {
		return false
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	at, ok := c.LocalAddr().(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap() == ip.Unmap()
}

// OriginAllowed says whether the request may act for its user: it comes from no
// web page, from one of this server, or from one of a listed origin. Handlers
// that upgrade to WebSocket ask it; for methods that change something it was
// asked already.
func (s *Server) OriginAllowed(c *fiber.Ctx) bool { return s.rules.originAllowed(c.Context()) }

func (r *rules) originAllowed(c *fasthttp.RequestCtx) bool {
	origin := c.Request.Header.Peek("Origin")
	if len(origin) > 0 && r.listed(origin) {
		return true
	}
	if string(c.Request.Header.Peek("Sec-Fetch-Site")) == "cross-site" {
		return r.anyOrigin
	}
	if len(origin) == 0 {
		return true
	}
	o := strings.ToLower(string(origin))
	scheme, at, ok := strings.Cut(o, "://")
	if !ok || scheme != "http" && scheme != "https" || at == "" {
		return false // "null" and the like
	}
	return dropPort(scheme, at) == dropPort(scheme, strings.ToLower(string(c.Request.Header.Host())))
}

func (r *rules) listed(origin []byte) bool {
	return r.anyOrigin || len(r.origins) > 0 && r.origins[strings.ToLower(string(origin))]
}

// dropPort leaves out the port that the scheme implies.
func dropPort(scheme, host string) string {
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// preflight answers a browser's question whether a page of a listed origin may
// ask, and lets such pages read replies. It reports whether it answered.
func (r *rules) preflight(c *fasthttp.RequestCtx) bool {
	origin := c.Request.Header.Peek("Origin")
	if len(origin) == 0 || !r.listed(origin) {
		return false
	}
	h := &c.Response.Header
	h.SetBytesV("Access-Control-Allow-Origin", origin)
	h.Set("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Inference-Header-Content-Length, Server-Timing, Retry-After")
	if !c.IsOptions() || len(c.Request.Header.Peek("Access-Control-Request-Method")) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.SetBytesV("Access-Control-Allow-Headers", c.Request.Header.Peek("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	c.SetStatusCode(fasthttp.StatusNoContent)
	return true
}
