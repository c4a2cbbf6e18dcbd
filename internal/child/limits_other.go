//go:build unix && !linux

package child

func (Limits) set(int) error { return nil }

// Usage is for Linux.
func (*Process) Usage(Usage) Usage { return Usage{} }

// NearLimit is for Linux.
func (*Process) NearLimit() bool { return false }
