package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sharedMemory reports that this system has shared memory. An unnamed file needs no /dev/shm.
const sharedMemory = true

func (s *segment) open(n int) (err error) {
	s.fd, err = unix.MemfdCreate("millrace-process", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("create shared memory: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(s.fd)
			err = fmt.Errorf("%d bytes of shared memory: %w", n, err)
		}
	}()
	// All memory is allocated here, so that lack of memory is an error instead of a later signal.
	if err = unix.Fallocate(s.fd, 0, 0, int64(n)); err != nil {
		return err
	}
	if _, err = unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|
		unix.F_SEAL_SEAL); err != nil {
		return err
	}
	s.bytes, err = unix.Mmap(s.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

func (s *segment) close() {
	_ = unix.Munmap(s.bytes) // fails only for an unmapped address
	_ = unix.Close(s.fd)
}
