package server

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"millrace/ingest"
	"millrace/ingest/access"
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

// write writes the line of an act.
func (a *audit) write(x access.Act) {
	if a == nil {
		return
	}
	code := ""
	switch {
	case x.Err != nil:
		code = string(stream.CodeOf(x.Err))
	case x.Status == fiber.StatusUnauthorized:
		code = string(stream.Unauthenticated)
	case x.Status == fiber.StatusForbidden:
		code = string(stream.PermissionDenied)
	case x.Status >= fiber.StatusBadRequest:
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
	p := x.By
	if p == nil && x.Protocol != signalled && a.strangers != nil {
		if !a.strangers.Allow() {
			a.left.Add(1)
			return
		}
		if n := a.left.Swap(0); n > 0 {
			more = append(more, slog.Uint64("not_written", n))
		}
	}
	name, by := "", ""
	if p != nil {
		if name, by = p.Name, p.Key; p.Session != "" {
			by = "session of " + by
		}
	}
	if len(x.Target) > maxTarget {
		x.Target = x.Target[:maxTarget]
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "audit", 0)
	line.AddAttrs(append([]slog.Attr{
		slog.String("principal", name), slog.String("authenticated", by), slog.String("address", x.Address), slog.String("protocol", x.Protocol), slog.String("verb", x.Verb),
		slog.String("target", x.Target), slog.String("outcome", outcome), slog.String("code", code),
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
		by := ingest.ClientOf(httpd.ClientOf(c)).Principal()
		if by == nil {
			by, _ = c.Locals(actorKey{}).(*access.Principal)
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
		s.audit.write(access.Act{By: by, Address: from, Protocol: "http", Verb: c.Method() + " " + path, Target: strings.Join(named, " "), Err: err, Status: status})
		return err
	}
}

// AuditSignal writes the line of a SIGHUP to the audit log, with what came of it.
func (s *Server) AuditSignal(err error) {
	s.audit.write(access.Act{Protocol: signalled, Verb: "SIGHUP", Err: err})
}
