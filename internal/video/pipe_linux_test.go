package video

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keepOutput enlarges the pipe of r's ffmpeg to n frames, and waits until the n frames are in the pipe, so that r
// finds the frames without waiting for ffmpeg.
func keepOutput(t *testing.T, r *Reader, n int) {
	t.Helper()
	conn, err := r.ffmpeg.Stdout.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		size, there := 0, 0
		if e := conn.Control(func(fd uintptr) {
			if size, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20); err == nil {
				there, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			}
		}); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if there >= n*r.FrameSize() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes are in a pipe for %d, want %d frames of %d", there, size, n, r.FrameSize())
		}
	}
}
