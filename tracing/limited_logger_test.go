package tracing

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitedLoggerLogsOnceASecondForEachModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLimiter(slog.New(slog.NewTextHandler(&out, nil)), time.Second)
		log := LimitedLogger(l).With("part", "workers")
		for range 50 {
			log.Error("worker panicked", "model", "a")
			log.Error("worker panicked", "model", "b")
		}
		log.Info("as it is")
		log.Info("as it is")
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		l.Close()
		text := out.String()
		for want, n := range map[string]int{"model=a": 2, "model=b": 2, "part=workers": 6, "suppressed=48": 2,
			"as it is": 2} {
			if got := strings.Count(text, want); got != n {
				t.Errorf("%q appears %d times, want %d:\n%s", want, got, n, text)
			}
		}
	})
}

// Records differ only by message, model and stream, wherever the attributes are set; records below a warning, or in a
// group, are not limited.
func TestLimitedLoggerDistinguishesRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLimiter(slog.New(slog.NewTextHandler(&out, nil)), time.Second)
		log := LimitedLogger(l)
		for range 3 {
			log.Warn("lost", "stream", "door")
			log.With("stream", "yard").Warn("lost")
			log.Warn("lost", "stream", "door", "model", "m")
			log.Warn("found", "stream", "door")
			log.Warn("lost", "address", rune('a'+out.Len()%7)) // is no part of the key
			log.WithGroup("g").Warn("grouped")
			log.Info("info")
		}
		text := out.String()
		for want, n := range map[string]int{
			"msg=lost stream=door\n": 1, "msg=lost stream=yard\n": 1, "msg=lost stream=door model=m": 1,
			"msg=found": 1, "address=": 1, "msg=grouped": 3, "msg=info": 3,
		} {
			if got := strings.Count(text, want); got != n {
				t.Errorf("%q appears %d times, want %d:\n%s", want, got, n, text)
			}
		}
		l.Close()
		if got := strings.Count(out.String(), "suppressed=1"); got != 5 {
			t.Errorf("%d records stand for those left out, want 5:\n%s", got, out.String())
		}
	})
}

// failing is a writer that fails.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A failing writer does not keep a record from other writers, and the first failure is returned.
func TestLogContinuesInOtherWriters(t *testing.T) {
	var out bytes.Buffer
	first, second := errors.New("first"), errors.New("second")
	n, err := tee{failing{first}, &out, failing{second}}.Write([]byte("abc"))
	if n != 3 || err != first || out.String() != "abc" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	if n, err := (tee{&out, &out}).Write([]byte("d")); n != 1 || err != nil || out.String() != "abcdd" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
}
