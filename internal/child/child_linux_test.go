package child_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/internal/child"
)

// waitGone waits until the process pid has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		switch {
		case err == unix.EINTR:
		case err != nil || n == 0:
			t.Fatalf("process %d still runs (%v)", pid, err)
		default:
			return
		}
	}
}

// onEndingThread runs f on a thread that ends right after it. The main thread never ends: a goroutine that runs on it
// keeps it and tries again with another goroutine.
func onEndingThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			onEndingThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// threadEnded waits until a thread of ours is gone.
func threadEnded(t *testing.T, tid int) {
	t.Helper()
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("thread %d does not end", tid)
		}
		runtime.Gosched()
	}
}

// A child survives the end of the thread that called Start, though the kernel kills children with the thread that forked them.
func TestChildSurvivesTheThreadThatCalledStart(t *testing.T) {
	var p *child.Process
	var err error
	var tid int
	onEndingThread(func() {
		tid = unix.Gettid()
		p, err = child.Start(context.Background(), child.Spec{Path: "sh", Args: []string{"-c", "read x; echo alive"}, Stdin: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	threadEnded(t, tid)
	_, _ = io.WriteString(p.Stdin, "go\n")
	if got := readLine(t, p); got != "alive" {
		t.Errorf("got %q", got)
	}
}
