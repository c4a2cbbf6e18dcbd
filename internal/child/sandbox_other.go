//go:build unix && !linux

package child

import "errors"

func isFirstThread() bool { return false }

// LandlockABI is for Linux.
func LandlockABI() int { return 0 }

// SandboxError returns an error: a Sandbox is for Linux.
func SandboxError() error { return errors.New("this system has no Landlock: it is a part of Linux") }

func (s *Sandbox) confine(string) error {
	if s == nil {
		return nil
	}
	return SandboxError()
}
