package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxKeys bounds the keys of a Limiter. New keys beyond it share overflowKey.
const maxKeys = 256

// overflowKey is the key that all keys beyond maxKeys share.
const overflowKey = "\x00overflow"

// Limiter logs at most a number of records per key and interval, one unless Most is
// set, for code that runs once a frame. It counts the records that it suppresses: the
// next record of the key has their number as "suppressed". It is safe for concurrent
// use.
type Limiter struct {
	// Most is how many records of a key are logged in an interval; 0 = 1. It is set
	// before the first call of Log.
	Most int

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

// Log logs the record, or suppresses it when the key's interval has had its number of
// records. At the end of the interval the last suppressed record is logged, with
// the number of the others. The caller keeps the number of keys small: a kind of
// failure and a model, never a client's stream.
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
	if w != nil && w.logged < l.Most {
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
		if l.keys[key] != w { // Close has logged it
			return
		}
		delete(l.keys, key)
		if w.suppressed > 0 {
			l.logSuppressed(w)
			l.begin(key)
		}
	})
}

// logSuppressed logs the last suppressed record, with the number of those before it.
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
