package conn

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeer makes the kernel close a connection when the peer has left sent data unacknowledged for d. The kernel
// thus detects a dead peer while nothing is read from the connection.
func watchPeer(conn net.Conn, d time.Duration) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	// Errors are ignored: a dead peer is then detected by the write deadline, later.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
