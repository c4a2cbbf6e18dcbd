//go:build unix && !linux

package child

func (Limits) set(int, bool) error { return nil }

func markParent() error { return nil }

// Usage is for Linux.
func (*Process) Usage(Usage) Usage { return Usage{} }

// Unnamed is for Linux.
func (*Process) Unnamed(int) (memory, disk uint64) { return 0, 0 }

// NearLimit is for Linux.
func (*Process) NearLimit() bool { return false }
