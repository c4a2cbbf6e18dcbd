package access

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"millrace/stream"
)

// Bounds of the audit log.
const (
	maxTarget = 256 // most bytes of a name from a client
	// The lines of clients without valid credentials: a burst, and lines a second. Further acts are counted.
	UnauthenticatedRate  = 20
	UnauthenticatedBurst = 100
)

// Audit writes a line of JSON for each administrative act. A nil Audit writes nothing. Audit is safe for
// concurrent use.
type Audit struct {
	log             *slog.Logger
	unauthenticated *rate.Limiter // nil = clients need no credentials
	skipped         atomic.Uint64 // acts without valid credentials not written since the last such act that was written
	lost            atomic.Uint64 // acts whose line could not be written
	failing         atomic.Bool   // the last line could not be written
	server          *slog.Logger  // the log of the server
}

// Stats returns the number of acts lost because the line could not be written, and whether there is an audit log.
func (a *Audit) Stats() (lost uint64, on bool) {
	if a == nil {
		return 0, false
	}
	return a.lost.Load(), true
}

// NewAudit returns an audit log that writes lines to log. open says that clients need no credentials. Lines that
// cannot be written go to server, the log of the server.
func NewAudit(log *slog.Logger, open bool, server *slog.Logger) *Audit {
	a := &Audit{log: log, server: server}
	if !open {
		a.unauthenticated = rate.NewLimiter(UnauthenticatedRate, UnauthenticatedBurst)
	}
	return a
}

// Signal is the protocol of acts that a user of the server's machine starts by a signal.
const Signal = "signal"

// write writes the line of an act.
func (a *Audit) write(x Act) {
	if a == nil {
		return
	}
	code := ""
	switch {
	case x.Err != nil:
		code = string(stream.CodeOf(x.Err))
	case x.Status == http.StatusUnauthorized:
		code = string(stream.Unauthenticated)
	case x.Status == http.StatusForbidden:
		code = string(stream.PermissionDenied)
	case x.Status >= http.StatusBadRequest:
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
	if p == nil && x.Protocol != Signal && a.unauthenticated != nil {
		if !a.unauthenticated.Allow() {
			a.skipped.Add(1)
			return
		}
		if n := a.skipped.Swap(0); n > 0 {
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
		slog.String("principal", name), slog.String("authenticated", by), slog.String("address", x.Address),
		slog.String("protocol", x.Protocol), slog.String("verb", x.Verb),
		slog.String("target", x.Target), slog.String("outcome", outcome), slog.String("code", code),
	}, more...)...)
	err := a.log.Handler().Handle(context.Background(), line)
	if err != nil {
		a.lost.Add(1)
	}
	switch was := a.failing.Swap(err != nil); {
	case err != nil && !was:
		a.server.Error("a line of the audit log could not be written: millrace_audit_lost_total counts this and "+
			"further ones", "error", err)
	case err == nil && was:
		a.server.Warn("lines of the audit log can be written again", "lost", a.lost.Load())
	}
}
