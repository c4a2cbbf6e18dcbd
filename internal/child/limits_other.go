//go:build unix && !linux

package child

func (Limits) set(int) error { return nil }

// NearLimit is for Linux.
func (*Process) NearLimit() bool { return false }
