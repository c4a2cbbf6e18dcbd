package video

import "golang.org/x/sys/unix"

// growPacketPipe makes the pipe larger, as far as the limit of the user allows, and returns its size.
func growPacketPipe(fd int) int {
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20)
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return 0
	}
	return n
}
