//go:build !linux

package child_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func limit(int) error { return nil }

// waitGone waits until the process pid has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); unix.Kill(pid, 0) != unix.ESRCH; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}
