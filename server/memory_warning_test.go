package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestMemoryWarning: the log names a budget above the memory of the machine or the container.
func TestMemoryWarning(t *testing.T) {
	for budget, want := range map[int64]bool{1 << 20: false, 1 << 60: true} {
		var log bytes.Buffer
		s := &Server{log: slog.New(slog.NewTextHandler(&log, nil))}
		s.cfg.Memory.Budget = budget
		s.warnMemory()
		if got := strings.Contains(log.String(), "setting=memory.budget"); got != want {
			t.Errorf("with %d bytes: %q", budget, &log)
		}
	}
}
