package tracing

import (
	"context"
	"log/slog"
	"slices"
)

// limited is a slog.Handler that hands records to a Limiter: warnings and errors
// of one message, model and stream come at most once an interval. Parts of the server
// that cannot know this package log through it as through any other.
type limited struct {
	next    slog.Handler
	limiter *Limiter
	attrs   []slog.Attr
}

// Limited returns a logger in front of the limiter's own. Records below warning
// pass as they are.
func Limited(l *Limiter) *slog.Logger {
	return slog.New(&limited{next: l.log.Handler(), limiter: l})
}

// Enabled implements slog.Handler.
func (h *limited) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	key := r.Message
	args := make([]any, 0, len(h.attrs)+r.NumAttrs())
	add := func(a slog.Attr) bool {
		if a.Key == "model" || a.Key == "stream" { // of the server's own: there are few
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
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limited{next: h.next.WithAttrs(attrs), limiter: h.limiter, attrs: append(slices.Clip(h.attrs), attrs...)}
}

// WithGroup implements slog.Handler. What is in a group passes unlimited.
func (h *limited) WithGroup(name string) slog.Handler { return h.next.WithGroup(name) }
