package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxKeys bounds the keys that a Limiter tells apart at once. Past it, new keys
// share one.
const maxKeys = 256

// overflow is the key of those that found no room.
const overflow = "\x00overflow"

// Limiter logs at most one record per key and interval, for places that are
// passed once a frame. What it leaves out is counted: the next record of the key
// has the number as "suppressed". It is safe for concurrent use.
type Limiter struct {
	log      *slog.Logger
	interval time.Duration

	mu   sync.Mutex
	keys map[string]*window // of records logged less than an interval ago
	done bool
}

// window is one key's present interval.
type window struct {
	suppressed int
	level      slog.Level // of the last record left out
	msg        string
	args       []any
	timer      *time.Timer
}

// Every returns a Limiter that writes to log.
func Every(log *slog.Logger, interval time.Duration) *Limiter {
	return &Limiter{log: log, interval: interval, keys: make(map[string]*window)}
}

// Log logs the record, or counts it when one of its key was logged less than an
// interval ago. The last one left out is logged when the interval ends, with the
// count. key is one of few: a kind of failure and a model, never a stream.
func (l *Limiter) Log(level slog.Level, key, msg string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	w := l.keys[key]
	if w == nil && len(l.keys) >= maxKeys {
		key = overflow
		w = l.keys[key]
	}
	if w != nil {
		w.suppressed++
		w.level, w.msg, w.args = level, msg, args
		return
	}
	l.open(key, &window{})
	l.log.Log(context.Background(), level, msg, args...)
}

// open begins an interval.
func (l *Limiter) open(key string, w *window) {
	l.keys[key] = w
	w.timer = time.AfterFunc(l.interval, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.done || l.keys[key] != w {
			return
		}
		delete(l.keys, key)
		if w.suppressed > 0 {
			l.flush(w)
			l.open(key, &window{})
		}
	})
}

// flush logs the last record left out, which stands for all of them.
func (l *Limiter) flush(w *window) {
	args := append(w.args[:len(w.args):len(w.args)], slog.Int("suppressed", w.suppressed-1))
	l.log.Log(context.Background(), w.level, w.msg, args...)
}

// Close logs what is still held back and stops. Later records are not logged.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	for _, w := range l.keys {
		w.timer.Stop()
		if w.suppressed > 0 {
			l.flush(w)
		}
	}
	l.keys = nil
}
