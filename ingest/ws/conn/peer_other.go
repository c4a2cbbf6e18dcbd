//go:build !linux

package conn

import (
	"net"
	"time"
)

// watchPeer does nothing: dead peers are detected by the write deadline.
func watchPeer(net.Conn, time.Duration) {}
