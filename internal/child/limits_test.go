//go:build linux

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"millrace/internal/testneeds"

	"golang.org/x/sys/unix"
)

// A child has its limits, and this process keeps its own limits.
func TestLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "written")
	p, err := Start(t.Context(), Spec{
		Path: "sh", Args: []string{"-c", `read x; ulimit -v; ulimit -n; ulimit -c; nice; trap "" XFSZ; { echo text >` +
			file + `; } 2>/dev/null || echo refused; ulimit -v unlimited 2>/dev/null || echo kept; read x`},
		Stdin: true, Limits: Limits{AddressSpace: 1 << 30, Files: 100, NoWrites: true, Nice: 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	if err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(p.Stdout)
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1048576", "100", "0", fmt.Sprint(min(20-own+7, 19)), "refused"}
	if os.Geteuid() != 0 {
		want = append(want, "kept")
	}
	for _, w := range want {
		if !in.Scan() || in.Text() != w {
			t.Fatalf("%q; want %q: %v", in.Text(), w, in.Err())
		}
	}
	if st, err := os.Stat(file); err == nil && st.Size() > 0 {
		t.Error("the file was written")
	}
	if p.NearLimit() {
		t.Error("a shell of some megabytes is near 1 GiB")
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Error(err)
	}
}

// A child has its limits before its first instruction, even if this process gets no processor time after the start,
// and nobody traces the child.
func TestLimitsFromStart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var busy atomic.Bool
	busy.Store(true)
	defer busy.Store(false)
	for range 2 {
		go func() {
			for busy.Load() {
			}
		}()
	}
	for _, sandbox := range []*Sandbox{nil, {Read: []string{"/"}, NoCapabilities: true}} {
		if sandbox != nil && SandboxError() != nil {
			continue
		}
		p, err := Start(t.Context(), Spec{Path: "sh", Args: []string{"-c", `ulimit -n; grep TracerPid /proc/self/status`},
			Limits: Limits{Files: 100, Strict: true}, Sandbox: sandbox})
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(p.Stdout)
		if want := "100\nTracerPid:\t0\n"; string(out) != want || err != nil || p.Wait() != nil {
			t.Errorf("%q, %v, %v; want %q", out, err, p.Wait(), want)
		}
		_ = p.Stop(0)
	}
}

// A child of an unprivileged user starts no more processes and threads than its limit.
func TestLimitOfTasks(t *testing.T) {
	const python = "MILLRACE_PYTHON"
	if os.Geteuid() == 0 { // the kernel does not limit root
		self, err := os.Open(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(testneeds.Program(t, "setpriv"), "--reuid", "65534", "--clear-groups",
			"/proc/self/fd/3", "-test.run=^TestLimitOfTasks$")
		cmd.ExtraFiles = []*os.File{self}
		cmd.Env = append(os.Environ(), python+"="+testneeds.Python(t)) // the user may be unable to read this folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	path := os.Getenv(python)
	if path == "" {
		path = testneeds.Python(t)
	}
	args := []string{path, "-S", "-c", `
import threading
threading.stack_size(64 << 10)
end = threading.Event()
try:
    for _ in range(5000): threading.Thread(target=end.wait).start()
except RuntimeError: print("refused", flush=True)
end.set()`}
	p, err := Start(t.Context(), Spec{Path: args[0], Args: args[1:], Limits: Limits{Tasks: 10, Strict: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	out, err := io.ReadAll(p.Stdout)
	if err != nil || string(out) != "refused\n" {
		t.Errorf("%q, %v, %s", out, err, p.Stderr())
	}
}

// Where a filter of system calls refuses ptrace, or ends its callers, a child starts, but not with strict limits.
func TestNoTrace(t *testing.T) {
	const asked = "MILLRACE_NO_TRACE"
	if os.Getenv(asked) == "" {
		for _, action := range []uint32{unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_KILL_PROCESS} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestNoTrace$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", asked, action))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%#x: %v: %s", action, err, out)
			}
		}
		return
	}
	action, err := strconv.ParseUint(os.Getenv(asked), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_PTRACE},
		{Code: unix.BPF_RET | unix.BPF_K, K: uint32(action)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog))); errno != 0 {
		t.Skip(errno)
	}
	for range 2 {
		p, err := Start(t.Context(), Spec{Path: "sh", Args: []string{"-c", "read x; ulimit -n"}, Stdin: true,
			Limits: Limits{Files: 100}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Write([]byte("go\n")); err != nil {
			t.Error(err)
		}
		if out, err := io.ReadAll(p.Stdout); string(out) != "100\n" || err != nil || p.Wait() != nil {
			t.Errorf("%q, %v, %v", out, err, p.Wait())
		}
		_ = p.Stop(0)
		if _, err := Start(t.Context(), Spec{Path: "true", Limits: Limits{Strict: true}}); err == nil ||
			!strings.Contains(err.Error(), "ptrace") {
			t.Errorf("strict: %v", err)
		}
	}
	if n := LiveChildren(); n != 0 {
		t.Errorf("%d children", n)
	}
}

// A child of a process with hard limits (ulimit -v, -c) starts, and has the lower limits.
func TestHardLimit(t *testing.T) {
	const asked = "MILLRACE_HARD_LIMIT"
	if os.Getenv(asked) == "" {
		const limit = `ulimit -v 16000000 && ulimit -c 0 && exec "$0" -test.run='^TestHardLimit$'`
		cmd := exec.Command("sh", "-c", limit, os.Args[0])
		cmd.Env = append(os.Environ(), asked+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	p, err := Start(t.Context(), Spec{Path: "sh", Args: []string{"-c", "read x; ulimit -v; ulimit -c"}, Stdin: true,
		Limits: Limits{AddressSpace: 64 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	if err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(p.Stdout); err != nil || string(out) != "16000000\n0\n" {
		t.Errorf("%q: %v", out, err)
	}
}

// The kernel ends a child that has used its processor time, even if the child catches the first signal.
func TestLimitOfProcessorTime(t *testing.T) {
	for script, signal := range map[string]syscall.Signal{
		`while :; do :; done`:               syscall.SIGXCPU,
		`trap "" XCPU; while :; do :; done`: syscall.SIGKILL,
	} {
		// a second
		p, err := Start(t.Context(), Spec{Path: "sh", Args: []string{"-c", script},
			Limits: Limits{CPU: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Stop(0) }()
		select {
		case <-p.Done():
		case <-time.After(time.Minute):
			t.Fatalf("%s: it has used %v, and goes on", script, p.CPU())
		}
		var e *ExitError
		if err := p.Wait(); !errors.As(err, &e) || e.Signal != signal || e.Stopped || p.CPU() > 4*time.Second {
			t.Errorf("%s: %v after %v of processor time; want %v", script, err, p.CPU(), signal)
		}
	}
}

// NearLimit is true only for a child that has taken nearly all of its address space.
func TestNearLimit(t *testing.T) {
	p, err := Start(t.Context(), Spec{
		Path: testneeds.Python(t), Args: []string{"-c", "input()\nkept = []\ntry:\n while True: " +
			"kept.append(bytearray(1 << 20))\nexcept MemoryError: print('full', flush=True)\ninput()"},
		Stdin: true, Limits: Limits{AddressSpace: 256 << 20},
	})
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = p.Stop(0) }()
	if err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(p.Stdout)
	if !in.Scan() || !strings.Contains(in.Text(), "full") {
		t.Fatalf("%q, %s", in.Text(), p.Stderr())
	}
	if !p.NearLimit() {
		t.Error("it is not told")
	}
	_ = p.Stop(0)
	if p.NearLimit() {
		t.Error("it has ended")
	}
}
