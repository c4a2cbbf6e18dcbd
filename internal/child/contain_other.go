//go:build unix && !linux

package child

import (
	"os"
	"syscall"
)

func contain(string, *syscall.SysProcAttr) (*os.Process, error) { return nil, nil }

func endHolder(*os.Process) {}
