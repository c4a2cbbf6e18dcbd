package batching

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const sharedRefused = "" // why this system has no shared memory

// newSegment makes a segment of n bytes and maps the segment; the caller holds a reference. newSegment allocates all
// of the memory, so that lack of memory is an error and not a signal at the first write. Segments need a bound of
// their own: the system kills processes rather than refusing shared memory.
func newSegment(n int) (*Segment, error) {
	var all unix.Sysinfo_t
	if err := unix.Sysinfo(&all); err == nil && uint64(n) > all.Totalram*uint64(all.Unit) {
		return nil, fmt.Errorf("allocate %d bytes of shared memory for a batch: %w", n, unix.ENOMEM)
	}
	fd, err := unix.MemfdCreate("millrace-batch", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create shared memory for a batch: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:millrace-batch")
	fail := func(what string, err error) (*Segment, error) {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s %d bytes of shared memory for a batch: %w", what, n, err)
	}
	if err := unix.Fallocate(fd, 0, 0, int64(n)); err != nil {
		return fail("allocate", err)
	}
	s := &Segment{ID: lastSegment.Add(1), File: f, Size: n}
	s.bytes, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fail("map", err)
	}
	// A process with the file must not be able to shrink the file: the next access here would cause a signal. Nor may
	// the process change a finished result.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.1
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		s.unmap()
		return fail("seal", err)
	}
	s.holds.Store(1)
	return s, nil
}

func (s *Segment) unmap() {
	_ = unix.Munmap(s.bytes) // fails only for an unmapped address
}
