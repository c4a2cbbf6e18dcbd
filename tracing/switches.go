package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// LogSwitches turn single levels of a log off, in addition to the minimum level. The zero value turns none off.
// LogSwitches are safe for concurrent use.
type LogSwitches struct{ off atomic.Uint32 }

// Set turns the given levels off, and all other levels on.
func (s *LogSwitches) Set(off ...slog.Level) {
	bits := uint32(0)
	for _, level := range off {
		bits |= bit(level)
	}
	s.off.Store(bits)
}

// On reports whether a level is not turned off.
func (s *LogSwitches) On(level slog.Level) bool { return s.off.Load()&bit(level) == 0 }

// bit is the bit of the named level at or below level.
func bit(level slog.Level) uint32 {
	switch {
	case level < slog.LevelInfo:
		return 1
	case level < slog.LevelWarn:
		return 2
	case level < slog.LevelError:
		return 4
	}
	return 8
}

// switched is a handler with LogSwitches.
type switched struct {
	slog.Handler
	by *LogSwitches
}

// Enabled implements slog.Handler.
func (h switched) Enabled(ctx context.Context, level slog.Level) bool {
	return h.by.On(level) && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h switched) WithAttrs(attrs []slog.Attr) slog.Handler {
	return switched{h.Handler.WithAttrs(attrs), h.by}
}

// WithGroup implements slog.Handler.
func (h switched) WithGroup(name string) slog.Handler {
	return switched{h.Handler.WithGroup(name), h.by}
}
