package httpd

import (
	"bytes"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// rules decide whether a request is allowed. Any web page visited by a user can send requests to this machine, even
// with the page's own host name if the name resolves to this machine. Therefore the Host header must be a name of
// this server, and requests with side effects must not come from another site. Requests of programs have no Origin
// and are allowed.
type rules struct {
	anyHost   bool
	hosts     map[string]bool // lower case, no port, no brackets
	suffixes  []string        // of allowed names, lower case, each with a dot in front
	probe     func(path string) bool
	proxy     func(remote net.Addr) bool // nil = no proxy
	anyOrigin bool
	origins   map[string]bool // scheme://host[:port], lower case
}

// Rules are rules about the hosts and origins of requests.
type Rules struct{ of *rules }

// NewRules returns rules for Use. Errors name the setting.
func (s *Server) NewRules(hosts, origins []string) (Rules, error) {
	r, err := newRules(s.bound, hosts, origins)
	r.probe, r.proxy = s.cfg.Probe, s.cfg.Proxy
	return Rules{&r}, err
}

// NewRules returns rules for a server of another package that listens at the host bound. Errors name the setting.
func NewRules(bound string, hosts []string) (Rules, error) {
	r, err := newRules(bound, hosts, nil)
	return Rules{&r}, err
}

// CheckHost returns an error if a request with this Host at the address at may not be answered.
func (r Rules) CheckHost(host string, at net.Addr) error {
	if r.of.anyHost || r.of.isOwn(strings.ToLower(host), at) {
		return nil
	}
	return errForeignHost(host)
}

func errForeignHost(host string) error {
	return coded.Errorf(coded.PermissionDenied, "", "the Host %.256q is not a name of this server: add it to hosts",
		host)
}

// Use sets the rules for future requests.
func (s *Server) Use(r Rules) { s.rules.Store(r.of) }

func newRules(bound string, hosts, origins []string) (rules, error) {
	r := rules{hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}, origins: map[string]bool{}}
	if ip, err := netip.ParseAddr(bound); bound != "" && (err != nil || !ip.IsUnspecified()) {
		r.hosts[strings.ToLower(bound)] = true
	}
	if name, _ := os.Hostname(); name != "" {
		r.hosts[strings.ToLower(name)] = true
	}
	for _, h := range hosts {
		if h == "*" {
			r.anyHost = true
			continue
		}
		rest, below := strings.CutPrefix(strings.ToLower(h), "*.")
		name := hostName(rest)
		if name == "" || strings.ContainsAny(rest, "/@* ") || below && (name[0] == '.' || strings.Contains(rest, ":")) {
			return r, coded.Errorf(coded.InvalidArgument, "hosts", "%q is not the name of a host: want a name or an "+
				"address, *.example.org for the names that end so, or * for any", h)
		}
		if below {
			r.suffixes = append(r.suffixes, "."+name)
			continue
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
			return r, coded.Errorf(coded.InvalidArgument, "origins",
				"%q is not a web origin: want https://name[:port], or * for any", o)
		}
		r.origins[u.Scheme+"://"+u.Host] = true
	}
	return r, nil
}

// hostName removes the port and the brackets.
func hostName(host string) string {
	if rest, ok := strings.CutPrefix(host, "["); ok {
		name, port, closed := strings.Cut(rest, "]")
		if !closed || port != "" && port[0] != ':' {
			return ""
		}
		return name
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
	if !r.hostAllowed(c) && !r.isProbe(c) {
		return errForeignHost(string(c.Request.Header.Host()))
	}
	switch string(c.Method()) {
	case "GET", "HEAD", "OPTIONS":
		return nil
	}
	if !r.originAllowed(c) {
		return coded.Errorf(coded.PermissionDenied, "",
			"requests from the web origin %.256q may not change anything on this server: add it to origins",
			c.Request.Header.Peek("Origin"))
	}
	return nil
}

// isProbe reports whether the request reads a health route. A kubelet uses any configured name or address.
func (r *rules) isProbe(c *fasthttp.RequestCtx) bool {
	return r.probe != nil && (c.IsGet() || c.IsHead()) && r.probe(string(c.URI().PathOriginal()))
}

func (r *rules) hostAllowed(c *fasthttp.RequestCtx) bool {
	if r.anyHost {
		return true
	}
	if !r.isOwnHost(c, c.Request.Header.Host()) {
		return false
	}
	// A request line with an absolute URL contains the host, too.
	return c.Request.Header.RequestURI()[0] == '/' || r.isOwnHost(c, c.Request.URI().Host())
}

func (r *rules) isOwnHost(c *fasthttp.RequestCtx, host []byte) bool {
	if r.hosts[string(host)] { // without a port: avoids a copy
		return true
	}
	conn := connOf(c.Conn())
	if conn != nil && conn.allowedBy == r && bytes.Equal(conn.allowedHost, host) {
		return true
	}
	if !r.isOwn(strings.ToLower(string(host)), c.LocalAddr()) {
		return false
	}
	if conn != nil && len(host) <= maxAllowedHost {
		conn.allowedHost, conn.allowedBy = append(conn.allowedHost[:0], host...), r
	}
	return true
}

// maxAllowedHost is the length of the longest name of DNS with a port, the longest host that a connection remembers.
const maxAllowedHost = 253 + len(":65535")

// isOwn reports whether a Host, in lower case, is a name of this server, or the address at which the connection
// arrived.
func (r *rules) isOwn(host string, local net.Addr) bool {
	name := hostName(host)
	if r.hosts[name] {
		return true
	}
	for _, s := range r.suffixes {
		if len(name) > len(s) && strings.HasSuffix(name, s) {
			return true
		}
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	at, ok := local.(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap() == ip.Unmap()
}

// OriginAllowed reports whether the request comes from no web page, or from a page of this server or of a listed
// origin. Handlers that upgrade to WebSocket must call OriginAllowed; for methods with side effects the server checks
// the origin before the handler.
func (s *Server) OriginAllowed(c *fiber.Ctx) bool { return s.rules.Load().originAllowed(c.Context()) }

func (r *rules) originAllowed(c *fasthttp.RequestCtx) bool {
	origin := c.Request.Header.Peek("Origin")
	if r.listed(origin) {
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
		return false // for example "null"
	}
	if scheme == "http" && r.encrypted(c) {
		return false // anyone between the browser and the server can write such a page
	}
	return dropPort(scheme, at) == dropPort(scheme, strings.ToLower(string(c.Request.Header.Host())))
}

// Encrypted reports whether the browser or program has encrypted its request, as far as known to the server or a
// proxy of Config.Proxy.
func (s *Server) Encrypted(c *fiber.Ctx) bool { return s.rules.Load().encrypted(c.Context()) }

func (r *rules) encrypted(c *fasthttp.RequestCtx) bool {
	if proto := c.Request.Header.Peek("X-Forwarded-Proto"); len(proto) > 0 && r.proxy != nil &&
		r.proxy(c.RemoteAddr()) {
		return strings.EqualFold(string(proto), "https")
	}
	return c.IsTLS()
}

func (r *rules) listed(origin []byte) bool {
	return r.anyOrigin || len(r.origins) > 0 && r.origins[strings.ToLower(string(origin))]
}

// dropPort removes the default port of the scheme.
func dropPort(scheme, host string) string {
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// preflight allows pages of listed origins to read replies, and answers the preflight requests (CORS) of browsers.
// The result reports whether the request was answered.
func (r *rules) preflight(c *fasthttp.RequestCtx) bool {
	origin := c.Request.Header.Peek("Origin")
	if len(origin) == 0 || !r.listed(origin) {
		return false
	}
	h := &c.Response.Header
	h.SetBytesV("Access-Control-Allow-Origin", origin)
	h.Set("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Inference-Header-Content-Length, Server-Timing, Retry-After, Location, "+
		"Upload-Offset, Upload-Length, Upload-Expires, Upload-Metadata, Tus-Resumable, Tus-Version, Tus-Extension, "+
		"Tus-Max-Size")
	if !c.IsOptions() || len(c.Request.Header.Peek("Access-Control-Request-Method")) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.SetBytesV("Access-Control-Allow-Headers", c.Request.Header.Peek("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	c.SetStatusCode(fasthttp.StatusNoContent)
	return true
}
