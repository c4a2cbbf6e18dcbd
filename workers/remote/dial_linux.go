package remote

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unansweredMillis is how long sent data may stay unacknowledged before the connection is taken for broken.
const unansweredMillis = 10_000

// limitUnanswered makes a connection to a vanished machine break in seconds, not in a quarter of an hour.
func limitUnanswered(c syscall.RawConn) {
	_ = c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unansweredMillis)
	})
}
