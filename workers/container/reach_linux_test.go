package container

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeftNetwork: when this machine has left the network of a container, nothing is sent to the container's address,
// which the default route would take to another machine.
func TestLeftNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial, end, err := dialTo(place{ip: netip.MustParseAddr("127.0.0.1"), bits: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	connect := func() error {
		c, err := dial(context.Background(), "tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := connect(); err != nil {
		t.Error(err)
	}
	left := make(chan error, 1)
	go func() {
		runtime.LockOSThread()                                  // the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil { // in the new namespace, lo has no address
			left <- err
			return
		}
		left <- connect()
	}()
	if err := <-left; err == nil || !strings.Contains(err.Error(), "no address in the network of the container") {
		t.Errorf("outside of the network: %v", err)
	}
}
