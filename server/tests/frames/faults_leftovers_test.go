//go:build linux

package frames_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/child"
)

// TestLeftovers: a killed server leaves the temporary folder of a program, and processes in a session of their own.
// The next server removes both at its start. A server that ends normally leaves nothing.
func TestLeftovers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folders := func() []string {
		found, err := filepath.Glob(filepath.Join(temp, "millrace-child-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const base = "http: 127.0.0.1:0\ngrpc: off\nmodels:\n  - {name: find, source: motion}\nconfine: {programs: " +
		"require}\n"
	dir := t.TempDir()
	const with = base + "streams:\n  - {name: exec, source: \"exec:sh -c '(setsid sleep 301 &) ; exec sleep 302'\", " +
		"model: find}\n"
	session := func() (fd int) {
		await(t, "a session of the program", func() bool { fd = held(t, "sleep\x00301\x00", temp); return fd > 0 })
		return fd
	}
	p := serve(t, dir, with)
	await(t, "a folder of the program", func() bool { return len(folders()) > 0 })
	fd := session()
	p.kill()
	left := folders()
	if len(left) != 1 {
		t.Fatalf("left %q, want the folder of the program", left)
	}
	p = serveAgain(t, dir, base)
	await(t, "the end of "+left[0], func() bool {
		_, err := os.Lstat(left[0])
		return os.IsNotExist(err)
	})
	if !ends(t, fd) {
		t.Error("the session of the program is left")
	}
	p.kill()

	p = serveAgain(t, dir, with)
	fd = session()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil || n != 1 {
		t.Errorf("the session of the program outlives the server (%v)", err)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if left := folders(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// held returns a descriptor of the process with a command line and a folder for temporary files; 0 = no process.
func held(t *testing.T, command, temp string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if string(line) != command || !bytes.Contains(env, []byte("TMPDIR="+temp)) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		for fd := range hold(t, []int{pid}) {
			return fd
		}
	}
	return 0
}

// await waits until there returns true.
func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for limit := time.Now().Add(killPatience); !there(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for %s for %v", what, killPatience)
		}
	}
}
