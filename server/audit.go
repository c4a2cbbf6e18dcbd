package server

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/tracing"
)

// Bounds of the audit log.
const (
	maxTarget = 256 // bytes of what a client names
	// Acts of clients without valid credentials, who may send any number, whatever came of them: a burst, and so many a second. The others are counted.
	strangers      = 20
	strangersBurst = 100
)

// audit writes a line of JSON for each administrative act. A nil one writes nothing. It is safe for concurrent use.
type audit struct {
	log       *slog.Logger
	file      *tracing.LogFile
	strangers *rate.Limiter // nil = clients need no credentials
	left      atomic.Uint64 // acts of strangers that were not written since the last one that was
	lost      atomic.Uint64 // acts whose line could not be written
	failing   atomic.Bool   // the last line could not be written
	server    *slog.Logger  // the log of the server
}

// stats returns how many acts have no line because it could not be written, and whether there is an audit log.
func (a *audit) stats() (lost uint64, on bool) {
	if a == nil {
		return 0, false
	}
	return a.lost.Load(), true
}

// openAudit opens the file of the setting audit; "" = there is none. authenticates says that clients need credentials.
func openAudit(path string, authenticates bool, server *slog.Logger) (*audit, error) {
	if path == "" {
		return nil, nil
	}
	log, file, err := tracing.NewAuditLog(path)
	if err != nil {
		return nil, err
	}
	a := &audit{log: log, file: file, server: server}
	if authenticates {
		a.strangers = rate.NewLimiter(strangers, strangersBurst)
	}
	return a, nil
}

func (a *audit) close() {
	if a != nil {
		_ = a.file.Close()
	}
}

// signalled is the protocol of acts that somebody on the server's machine does by a signal.
const signalled = "signal"

// act is an administrative act.
type act struct {
	of       *ingest.Principal // nil = nobody, or not known
	address  string
	protocol string // http, grpc, native or signalled
	verb     string // the route or the method
	target   string // what the client has named
	err      error
	status   int // of HTTP, for answers without an error
}

// write writes the line of an act.
func (a *audit) write(x act) {
	if a == nil {
		return
	}
	code := ""
	switch {
	case x.err != nil:
		code = string(stream.CodeOf(x.err))
	case x.status == fiber.StatusUnauthorized:
		code = string(stream.Unauthenticated)
	case x.status == fiber.StatusForbidden:
		code = string(stream.PermissionDenied)
	case x.status >= fiber.StatusBadRequest:
		code = "failed"
	}
	outcome := "failed"
	switch code {
	case "":
		outcome = "done"
	case string(stream.Unauthenticated), string(stream.PermissionDenied):
		outcome = "refused"
	}
	var more []slog.Attr
	if x.of == nil && x.protocol != signalled && a.strangers != nil {
		if !a.strangers.Allow() {
			a.left.Add(1)
			return
		}
		if n := a.left.Swap(0); n > 0 {
			more = append(more, slog.Uint64("not_written", n))
		}
	}
	name, by := "", ""
	if p := x.of; p != nil {
		if name, by = p.Name, p.Key; p.Session != "" {
			by = "session of " + by
		}
	}
	if len(x.target) > maxTarget {
		x.target = x.target[:maxTarget]
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "audit", 0)
	line.AddAttrs(append([]slog.Attr{
		slog.String("principal", name), slog.String("authenticated", by), slog.String("address", x.address), slog.String("protocol", x.protocol), slog.String("verb", x.verb),
		slog.String("target", x.target), slog.String("outcome", outcome), slog.String("code", code),
	}, more...)...)
	err := a.log.Handler().Handle(context.Background(), line)
	if err != nil {
		a.lost.Add(1)
	}
	switch was := a.failing.Swap(err != nil); {
	case err != nil && !was:
		a.server.Error("a line of the audit log could not be written: millrace_audit_lost_total counts this and further ones", "error", err)
	case err == nil && was:
		a.server.Warn("lines of the audit log can be written again", "lost", a.lost.Load())
	}
}

// audited reports whether requests of a route are administrative acts: those that need role.Manage, and logins and logouts.
func audited(r *openapi.Route) bool {
	return r.Role == role.Manage || strings.HasSuffix(r.Path, "login") || strings.HasSuffix(r.Path, "logout")
}

// attemptKey is the key under which a login that was refused has the name that it has given.
type attemptKey struct{}

// actorKey is the key under which a request has the principal that logs in or out, or was refused.
type actorKey struct{}

// auditRoute returns the handler in front of all others of a route.
func (s *Server) auditRoute(path string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		from := addressText(s.clientAddress(c)) // as the head has it, whatever handlers do
		err := c.Next()
		p, _ := c.Locals(ingest.PrincipalKey{}).(*ingest.Principal)
		if p == nil {
			p, _ = c.Locals(actorKey{}).(*ingest.Principal)
		}
		var named []string
		if name, ok := c.Locals(attemptKey{}).(string); ok {
			named = append(named, name)
		}
		for _, name := range c.Route().Params {
			value, bad := url.PathUnescape(c.Params(name))
			if bad != nil {
				value = c.Params(name)
			}
			named = append(named, value)
		}
		made := string(c.Response().Header.Peek(fiber.HeaderLocation))
		if name, is := strings.CutPrefix(made, httpd.Relative(c, "/v2/streams/")); is && len(named) == 0 {
			named = append(named, name)
		}
		status := c.Response().StatusCode()
		if err != nil {
			status = httpd.StatusOf(err)
		}
		s.audit.write(act{of: p, address: from, protocol: "http", verb: c.Method() + " " + path, target: strings.Join(named, " "), err: err, status: status})
		return err
	}
}

// auditCall writes the line of a call of gRPC.
func (s *Server) auditCall(p *ingest.Principal, from net.Addr, forwarded, method, target string, err error) {
	address := ""
	if from != nil {
		address = addressText(s.addressOf(from, forwarded))
	}
	s.audit.write(act{of: p, address: address, protocol: "grpc", verb: method, target: target, err: err})
}

// auditNative writes the line of a call of a Go program for a principal.
func (s *Server) auditNative(p *ingest.Principal, method, model string, err error) {
	s.audit.write(act{of: p, protocol: "native", verb: method, target: model, err: err})
}

// AuditSignal writes the line of a SIGHUP to the audit log, with what came of it.
func (s *Server) AuditSignal(err error) {
	s.audit.write(act{protocol: signalled, verb: "SIGHUP", err: err})
}
