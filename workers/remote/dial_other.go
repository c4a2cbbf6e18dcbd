//go:build !linux

package remote

import "syscall"

// limitUnanswered does nothing: only Linux bounds the time of unacknowledged data for each connection.
func limitUnanswered(syscall.RawConn) {}
