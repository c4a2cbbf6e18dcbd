package child_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

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

// limit sets the limit of files of another process to its present value.
func limit(pid int) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &now, nil)
}

// A confined child can have no capabilities, under any user, and still change its own limits.
func TestNoCapabilities(t *testing.T) {
	needSandbox(t)
	for _, none := range []bool{true, false} {
		p, err := child.Start(t.Context(), child.Spec{
			Path: "sh", Args: []string{"-c", "ulimit -n 50; cat /proc/self/status"},
			Sandbox: &child.Sandbox{Read: append([]string{"/proc"}, system...), NoCapabilities: none},
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(p.Stdout)
		if err != nil || p.Wait() != nil {
			t.Fatal(err, p.Wait())
		}
		_ = p.Stop(0)
		_, after, _ := strings.Cut(string(out), "CapEff:")
		has := strings.Trim(strings.Fields(after)[0], "0") != ""
		if want := !none && os.Geteuid() == 0; has != want {
			t.Errorf("no capabilities %v: it has some: %v", none, has)
		}
	}
}

func TestNoCoreDumps(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	raised := unix.Rlimit{Cur: before.Max, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &raised); err != nil || before.Max <= 1 {
		t.Skipf("core dumps are off here: %+v, %v", before, err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &before) }()
	p, err := child.Start(t.Context(), child.Spec{Path: "sh", Args: []string{"-c", "read x; cat /proc/self/limits"},
		Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	_, _ = io.WriteString(p.Stdin, "go\n")
	out, err := io.ReadAll(p.Stdout)
	_, line, _ := strings.Cut(string(out), "Max core file size")
	if f := strings.Fields(line); err != nil || len(f) < 2 || f[0] != "1" || f[1] != "1" {
		t.Errorf("%.60q, %v", line, err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &after); err != nil || after != raised {
		t.Errorf("%+v, %v", after, err)
	}
}

// onEndingThread runs f on a thread that ends right afterwards. Because the main thread never ends, a goroutine on
// the main thread keeps the thread and tries again with another goroutine.
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

// A child survives the end of the thread that called Start, although the kernel kills children with the thread of
// their fork.
func TestChildSurvivesTheThreadThatCalledStart(t *testing.T) {
	var p *child.Process
	var err error
	var tid int
	onEndingThread(func() {
		tid = unix.Gettid()
		p, err = child.Start(context.Background(), child.Spec{Path: "sh", Args: []string{"-c", "read x; echo alive"},
			Stdin: true})
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

// The run delay of a child that waits for a processor grows; that of a sleeping child does not.
func TestRunDelay(t *testing.T) {
	start := func(script string) *child.Process {
		t.Helper()
		p, err := child.Start(t.Context(), child.Spec{Path: "sh", Args: []string{"-c", script}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop(0) })
		return p
	}
	var one unix.CPUSet
	one.Set(0)
	asleep := start("echo; read x")
	busy := []*child.Process{start("while :; do :; done"), start("while :; do :; done")}
	for _, p := range busy {
		if err := unix.SchedSetaffinity(p.Pid(), &one); err != nil {
			t.Skip(err)
		}
	}
	if _, err := asleep.Stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var before time.Duration
	for runnable := true; runnable; before, runnable = asleep.RunDelay() {
		time.Sleep(time.Millisecond)
	}
	for _, p := range busy {
		for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			delay, runnable := p.RunDelay()
			if !runnable {
				t.Fatal("a child with an endless loop is not runnable")
			}
			if delay > 100*time.Millisecond {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("the run delay is %v", delay)
			}
		}
	}
	if after, runnable := asleep.RunDelay(); after != before || runnable {
		t.Errorf("the run delay of a sleeping child has grown by %v, runnable %v", after-before, runnable)
	}
	_ = busy[0].Stop(0)
	if delay, runnable := busy[0].RunDelay(); delay != 0 || runnable {
		t.Errorf("after the end: %v, %v", delay, runnable)
	}
}
