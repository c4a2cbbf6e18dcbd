package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// inside returns a function that connects from the network namespace of the container at p, for which the server needs
// CAP_SYS_ADMIN. end closes the namespace.
func inside(p place) (dial func(ctx context.Context, network, to string) (net.Conn, error), end func(), err error) {
	if p.pid <= 0 {
		return nil, nil, errors.New("the engine names no process")
	}
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	if err != nil {
		return nil, nil, err
	}
	// The process may be of another machine, such as the engine's virtual machine, or a later process of the number.
	if err := enter(space, p.hasAddress); err != nil {
		_ = space.Close()
		return nil, nil, err
	}
	return func(ctx context.Context, network, to string) (c net.Conn, err error) {
		err = enter(space, func() error {
			if err := p.hasAddress(); err != nil {
				return err
			}
			c, err = (&net.Dialer{}).DialContext(ctx, network, to)
			return err
		})
		return c, err
	}, func() { _ = space.Close() }, nil
}

// hasAddress returns nil when the thread's network has the address of the container.
func (p place) hasAddress() error {
	all, err := net.InterfaceAddrs()
	if err == nil && !slices.ContainsFunc(all, func(a net.Addr) bool {
		n, is := a.(*net.IPNet)
		return is && n.IP.Equal(p.ip.AsSlice())
	}) {
		err = fmt.Errorf("the network of process %d has no address %s", p.pid, p.ip)
	}
	return err
}

// setNetwork moves the thread into a network namespace. The descriptor of space cannot be closed meanwhile, and so
// cannot be the number of another file.
func setNetwork(space *os.File) error {
	c, err := space.SyscallConn()
	if err != nil {
		return err
	}
	var moved error
	if err := c.Control(func(fd uintptr) { moved = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil {
		return err
	}
	return moved
}

// enter calls f on a thread in the network namespace space. The thread returns to its own namespace, or ends.
func enter(space *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // a goroutine that ends with its thread locked ends the thread
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = own.Close() }()
		if err := setNetwork(space); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("setns: %w", err)
			return
		}
		err = f()
		if setNetwork(own) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
