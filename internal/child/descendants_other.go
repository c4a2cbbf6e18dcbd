//go:build unix && !linux

package child

import (
	"context"
	"os"
)

func newMark() string { return "" }

func startStopped(_, path string, args []string, attr *os.ProcAttr, _ bool) (*os.Process, func() error, error) {
	proc, err := os.StartProcess(path, args, attr)
	return proc, func() error { return nil }, err
}

func forget(int) {}

// Adopt does nothing: adoption needs Linux.
func Adopt(context.Context) error { return nil }

func endOrphans() int { return 0 }

// KillOrphans does nothing: it needs Linux.
func KillOrphans(context.Context) ([]string, error) { return nil, nil }
