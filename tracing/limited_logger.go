package tracing

import (
	"context"
	"log/slog"
	"slices"
)

// limitedHandler is a slog.Handler that limits warnings and errors: records with the same message, model and stream
// are logged at most once per interval. Packages that must not import package tracing use the limiter through
// limitedHandler.
type limitedHandler struct {
	next    slog.Handler
	limiter *Limiter
	attrs   []slog.Attr
}

// LimitedLogger returns a logger that passes warnings and errors through l and writes records of lower levels to l's
// own logger at once.
func LimitedLogger(l *Limiter) *slog.Logger {
	return slog.New(&limitedHandler{next: l.log.Handler(), limiter: l})
}

// Enabled implements slog.Handler.
func (h *limitedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	key := r.Message
	args := make([]any, 0, len(h.attrs)+r.NumAttrs())
	add := func(a slog.Attr) bool {
		if a.Key == "model" || a.Key == "stream" { // "stream" is the name of a server stream: there are few
			key += "\x00" + a.Value.String()
		}
		args = append(args, a)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.limiter.Log(r.Level, key, r.Message, args...)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{next: h.next.WithAttrs(attrs), limiter: h.limiter,
		attrs: append(slices.Clip(h.attrs), attrs...)}
}

// WithGroup implements slog.Handler. Records of a group are not limited.
func (h *limitedHandler) WithGroup(name string) slog.Handler { return h.next.WithGroup(name) }
