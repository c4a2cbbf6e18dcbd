package blob

import (
	"os"
	"syscall"
)

// startWriting lets the system begin to write a part of a file to the disk, so that the sync at the end waits for the
// last parts only.
func startWriting(f *os.File, from, n int64) {
	const write = 2 // SYNC_FILE_RANGE_WRITE
	_ = syscall.SyncFileRange(int(f.Fd()), from, n, write)
}
