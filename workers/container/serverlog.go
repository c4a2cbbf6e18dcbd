package container

import (
	"bytes"
	"log/slog"
	"sync"

	"golang.org/x/time/rate"
)

// Bounds of the lines of a container in the server's log.
const (
	maxLogLine  = 4 << 10 // bytes of a line; longer lines are cut
	maxLogRate  = 100     // lines a second of a container
	maxLogBurst = 500     // lines at once
)

// serverLog writes the lines of a container into the server's log, at a bounded rate. Its methods are safe for
// concurrent use.
type serverLog struct {
	log  *slog.Logger
	rate *rate.Limiter

	mu   sync.Mutex
	line []byte // the begin of the last line, at most maxLogLine
	lost int    // lines since the last logged line
}

// newServerLogs returns the logs of stdout and stderr, with one rate for both.
func newServerLogs(log *slog.Logger) (out, err *serverLog) {
	limit := rate.NewLimiter(maxLogRate, maxLogBurst)
	return &serverLog{log: log.With("from", "stdout"), rate: limit},
		&serverLog{log: log.With("from", "stderr"), rate: limit}
}

// Write implements io.Writer.
func (l *serverLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		l.line = append(l.line, part[:min(len(part), maxLogLine-len(l.line))]...)
		if !ended {
			return n, nil
		}
		l.endLine()
		b = rest
	}
}

// endLine logs the line.
func (l *serverLog) endLine() {
	text := string(bytes.TrimRight(l.line, "\r"))
	l.line = l.line[:0]
	if !l.rate.Allow() {
		l.lost++
		return
	}
	if l.lost > 0 {
		l.log.Warn("lines of the container were left out, since it writes too many", "lines", l.lost)
		l.lost = 0
	}
	l.log.Info("the container writes", "line", text)
}
