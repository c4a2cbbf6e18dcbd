package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

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
	err = enter(space, func() error {
		if !p.joined() { // the process is of another machine, such as the engine's virtual machine
			return fmt.Errorf("the network of process %d has no address %s", p.pid, p.ip)
		}
		return nil
	})
	if err != nil {
		_ = space.Close()
		return nil, nil, err
	}
	return func(ctx context.Context, network, to string) (c net.Conn, err error) {
		err = enter(space, func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, to)
			return err
		})
		return c, err
	}, func() { _ = space.Close() }, nil
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
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("setns: %w", err)
			return
		}
		err = f()
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
