package blob

import (
	"errors"
	"math"
	"syscall"

	"millrace/stream/coded"
)

// ErrFull is wrapped by the errors about a disk without room.
var ErrFull = errors.New("the disk is full")

// FullError is the error about a folder whose disk has no room for a change, with the reason.
func FullError(folder string, why error) error {
	return coded.Errorf(coded.Overloaded, "", "%w: delete tasks, or make room for %s: %v", ErrFull, folder, why)
}

// full returns err, and FullError for an error about a disk without room.
func (f *Files) full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return FullError(f.folder, err)
	}
	return err
}

// Room is implemented by stores whose disk may become full.
type Room interface {
	// Free returns how many further bytes the disk takes from this process; many when unknown.
	Free() int64
	// Full returns FullError for the store.
	Full(why error) error
}

var _ Room = (*Files)(nil)

// Free implements Room.
func (f *Files) Free() int64 { return Free(f.folder) }

// Full implements Room.
func (f *Files) Full(why error) error { return FullError(f.folder, why) }

// Free returns how many further bytes the disk of a folder takes from this process; many when unknown.
func Free(folder string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil || s.Bavail > math.MaxInt64/uint64(s.Bsize) {
		return math.MaxInt64
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
