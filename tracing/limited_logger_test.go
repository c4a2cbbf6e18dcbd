package tracing

import (
	"bytes"
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
		for want, n := range map[string]int{"model=a": 2, "model=b": 2, "part=workers": 6, "suppressed=48": 2, "as it is": 2} {
			if got := strings.Count(text, want); got != n {
				t.Errorf("%q appears %d times, want %d:\n%s", want, got, n, text)
			}
		}
	})
}
