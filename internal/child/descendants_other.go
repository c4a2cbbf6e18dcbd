//go:build unix && !linux

package child

import (
	"context"
	"os"
)

func newMark() string { return "" }

func startMarked(_, path string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	return os.StartProcess(path, args, attr)
}

func forget(int) {}

// Adopt does nothing: adoption needs Linux.
func Adopt(context.Context) error { return nil }

func endOrphans() {}

// KillOrphans does nothing: it needs Linux.
func KillOrphans(context.Context) ([]string, error) { return nil, nil }
