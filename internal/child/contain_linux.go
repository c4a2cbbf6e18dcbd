package child

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A contained child runs in a namespace of process ids, in which it sees its descendants only. The first process there
// is the holder: this program again, which reaps orphans. The kernel ends all processes of the namespace with the
// holder, and the holder with the thread of the child.

const holderName = "millrace: holder of processes"

func init() { // in each program that may start contained children, also tests
	if len(os.Args) != 1 || os.Args[0] != holderName {
		return
	}
	signal.Ignore(unix.SIGCHLD) // the kernel reaps
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil { // of the namespace of the caller
		_, _ = os.Stdout.WriteString(err.Error())
	}
	_ = os.Stdout.Close()
	for {
		_ = unix.Pause()
	}
}

// canContain reports whether this process may make namespaces: root may, but not in most containers.
var canContain = sync.OnceValue(func() bool {
	can := make(chan bool)
	onOwnThread(func() {
		holder, err := makeNamespaces(newMark())
		endHolder(holder)
		can <- err == nil
	})
	return <-can
})

// contain lets the next child of the calling thread (of onOwnThread) lead a session, so that no descendant can join the
// group of this process, and run in new namespaces, if this process may make namespaces.
func contain(mark string, of *syscall.SysProcAttr) (holder *os.Process, err error) {
	of.Setpgid, of.Setsid = false, true
	if !canContain() {
		return nil, nil
	}
	of.Pdeathsig = 0 // the child would take its parent, which has no id in the namespace, for dead
	return makeNamespaces(mark)
}

// makeNamespaces lets the later children of the calling thread (of onOwnThread) run in new namespaces of process ids,
// mounts and IPC, until endHolder.
func makeNamespaces(mark string) (holder *os.Process, err error) {
	// The first use of package os starts a process for a test, which must not be the first of the namespace.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	if err := unix.Unshare(unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("mount of /: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	ready, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	holder, err = startMarked(mark, "/proc/self/exe", []string{holderName}, &os.ProcAttr{Env: []string{},
		Files: []*os.File{null, out, null}, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}})
	_ = out.Close()
	if err != nil {
		return nil, err
	}
	failed, err := io.ReadAll(ready)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("mount of /proc: %s", failed)
	}
	if err != nil {
		endHolder(holder)
		return nil, err
	}
	return holder, nil
}

// endHolder ends all processes of the namespace; nil = none.
func endHolder(holder *os.Process) {
	if holder != nil {
		pid := holder.Pid
		_ = holder.Kill()
		_, _ = holder.Wait()
		forget(pid)
	}
}
