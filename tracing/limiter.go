package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxKeys bounds the keys of a Limiter. Further keys share overflowKey.
const maxKeys = 256

// overflowKey is the key shared by all keys beyond maxKeys.
const overflowKey = "\x00overflow"

// Limiter bounds the number of records per key and interval, to one unless Max is set, for code that runs once a
// frame. The next record of the key contains the number of suppressed records as "suppressed". Limiter is safe for
// concurrent use.
type Limiter struct {
	// Max is the largest number of records per key and interval; 0 = 1. Max must be set before the first call of
	// Log.
	Max int

	log      *slog.Logger
	interval time.Duration

	mu     sync.Mutex
	keys   map[string]*keyState // of records logged less than an interval ago
	closed bool
}

// keyState is a key's current interval.
type keyState struct {
	logged     int
	suppressed int
	level      slog.Level // of the last suppressed record, as are msg and args
	msg        string
	args       []any
	timer      *time.Timer
}

// NewLimiter returns a Limiter that writes to log.
func NewLimiter(log *slog.Logger, interval time.Duration) *Limiter {
	return &Limiter{log: log, interval: interval, keys: make(map[string]*keyState)}
}

// Log logs the record, or suppresses the record when the key has reached its limit in the interval. At the end of the
// interval, the last suppressed record is logged, with the number of the other suppressed records. The caller keeps
// the number of keys small: a key is a kind of failure and a model, never a client's stream.
func (l *Limiter) Log(level slog.Level, key, msg string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	w := l.keys[key]
	if w == nil && len(l.keys) >= maxKeys {
		key = overflowKey
		w = l.keys[key]
	}
	if w != nil && w.logged < l.Max {
		w.logged++
		l.log.Log(context.Background(), level, msg, args...)
		return
	}
	if w != nil {
		w.suppressed++
		w.level, w.msg, w.args = level, msg, args
		return
	}
	l.begin(key)
	l.log.Log(context.Background(), level, msg, args...)
}

// begin begins an interval of the key.
func (l *Limiter) begin(key string) {
	w := &keyState{logged: 1}
	l.keys[key] = w
	w.timer = time.AfterFunc(l.interval, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.keys[key] != w { // logged by Close
			return
		}
		delete(l.keys, key)
		if w.suppressed > 0 {
			l.logSuppressed(w)
			l.begin(key)
		}
	})
}

// logSuppressed logs the last suppressed record, with the number of earlier suppressed records.
func (l *Limiter) logSuppressed(w *keyState) {
	args := append(w.args[:len(w.args):len(w.args)], slog.Int("suppressed", w.suppressed-1))
	l.log.Log(context.Background(), w.level, w.msg, args...)
}

// Close logs the suppressed records and stops. Later records are discarded.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, w := range l.keys {
		w.timer.Stop()
		if w.suppressed > 0 {
			l.logSuppressed(w)
		}
	}
	l.keys = nil
}
