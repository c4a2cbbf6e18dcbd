package process

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	maxLine  = 4 << 10 // bytes of a line of the program's output; longer lines are cut
	logRate  = 100     // lines a second
	logBurst = 500     // lines at once
)

// logs writes a child's output into the server's log, at a bounded rate.
type logs struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	tokens float64
	last   time.Time
	lost   int
}

func newLogs(log *slog.Logger) *logs { return &logs{log: log, now: time.Now, tokens: logBurst} }

func (l *logs) line(level slog.Level, text string, args ...any) {
	l.mu.Lock()
	now := l.now()
	if !l.last.IsZero() {
		l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*logRate, logBurst)
	}
	l.last = now
	if l.tokens < 1 {
		l.lost++
		l.mu.Unlock()
		return
	}
	l.tokens--
	lost := l.lost
	l.lost = 0
	l.mu.Unlock()
	if lost > 0 {
		l.log.Warn("lines of the program were left out, since it writes too many", "lines", lost)
	}
	if len(text) > maxLine {
		text = text[:maxLine]
	}
	l.log.Log(context.Background(), level, text, args...)
}

// flush logs how many lines were left out last.
func (l *logs) flush() {
	l.mu.Lock()
	lost := l.lost
	l.lost = 0
	l.mu.Unlock()
	if lost > 0 {
		l.log.Warn("lines of the program were left out, since it writes too many", "lines", lost)
	}
}

// copyLines logs the lines of a pipe until the end of the pipe.
func (l *logs) copyLines(r io.Reader, from string) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		line, more, err := b.ReadLine()
		if err != nil {
			return
		}
		if text := strings.TrimRight(string(line), " \t"); text != "" {
			l.line(slog.LevelInfo, text, "from", from)
		}
		_ = more // the rest of a long line becomes a separate line
	}
}

// levelOf returns the level with the given name, or Info.
func levelOf(name string) slog.Level {
	switch strings.ToLower(name) {
	case "debug", "trace":
		return slog.LevelDebug
	case "warning", "warn":
		return slog.LevelWarn
	case "error", "critical", "fatal":
		return slog.LevelError
	}
	return slog.LevelInfo
}
