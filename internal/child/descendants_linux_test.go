package child_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// A session is begun as the child of the program, by a double fork, without the program's variables, and with a mark of
// no child. Each prints its process id.
const (
	direct  = "setsid sh -c 'echo $$; exec sleep 300' & "
	double  = "(setsid sh -c 'echo $$; exec sleep 300' &) ; "
	cleared = "env -i setsid sh -c 'echo $$; exec sleep 300' & "
	forged  = "env -i _MILLRACE_CHILD=1 setsid sh -c 'echo $$; exec sleep 300' & "
)

// pids reads n process ids from a child.
func pids(t *testing.T, p *child.Process, n int) (ids []int) {
	t.Helper()
	lines := bufio.NewReader(p.Stdout)
	for range n {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err, p.Stderr())
		}
		id, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func there(pid int) bool { return syscall.Kill(pid, 0) == nil }

// inAdopter runs a test in another process that adopts, because Adopt changes the whole process; false in the first
// process.
func inAdopter(t *testing.T) bool {
	t.Helper()
	const adopts = "CHILD_TEST_ADOPTS"
	if os.Getenv(adopts) == "" {
		c := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), adopts+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		} else {
			t.Logf("%s", out)
		}
		return false
	}
	child.SetEndLimit(time.Minute) // other tests may use all processors
	if err := child.Adopt(t.Context()); err != nil {
		t.Skip(err)
	}
	return true
}

// forks is a program that starts processes. Each process starts another process, and ends. The processes of mode 0 are
// in 4 groups, those of mode 2 in the group of the second argument; with mode 1 and 3, each begins a group or session.
const forks = `
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
	int mode = atoi(argv[1]);
	time_t end = time(0) + 60; // also after a failed test
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			if (mode == 0) setpgid(0, 0);
			if (mode == 2) setpgid(0, atoi(argv[2]));
			for (;;) {
				if (mode == 1) setpgid(0, 0);
				if (mode == 3) setsid();
				if (fork() || time(0) > end) _exit(0);
			}
		}
	puts("1");
	fflush(stdout);
	for (;;) pause();
}`

func compileForks(t *testing.T, dir string) (program string) {
	program = filepath.Join(dir, fmt.Sprint("forks", os.Getpid()))
	gcc := exec.Command(testneeds.Program(t, "gcc"), "-O2", "-o", program, "-x", "c", "-")
	gcc.Stdin = strings.NewReader(forks)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	return program
}

// Processes that start a process and end, in turn, are ended and reaped with the child, in new groups and sessions, and
// in the group of the test. A process started by os/exec keeps its status.
func TestForksInTurn(t *testing.T) {
	testneeds.Program(t, "gcc")
	if !inAdopter(t) {
		return
	}
	dir := t.TempDir()
	program := compileForks(t, dir)
	args := []string{program}
	if os.Geteuid() == 0 { // the kernel does not limit root
		args = []string{testneeds.Program(t, "setpriv"), "--reuid", "65534", "--clear-groups", program}
		for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, mode := range []string{"0", "1", "2", "3", "2", "3"} {
		held := hold(t)
		ordinary := exec.Command("sh", "-c", "exit 7")
		if err := ordinary.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := child.Start(t.Context(), child.Spec{
			Path: args[0], Args: append(slices.Clone(args[1:]), mode, strconv.Itoa(syscall.Getpgrp())),
			ExtraFiles: []*os.File{held}, Limits: child.Limits{Tasks: 500},
		})
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
			t.Fatal(line, err, p.Stderr())
		}
		_ = p.Stop(0)
		if isHeld(t, held) || p.Left() != 0 {
			t.Errorf("mode %s: a process is left, %d by its own count", mode, p.Left())
		}
		if err := ordinary.Wait(); err == nil || err.Error() != "exit status 7" {
			t.Errorf("mode %s: the process of another package: %v", mode, err)
		}
		if n := ownChildren(t); n != 0 {
			t.Errorf("mode %s: %d processes are not reaped", mode, n)
		}
	}
}

// ownChildren returns the number of children of this process, with ended children.
func ownChildren(t *testing.T) (n int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		n += len(strings.Fields(string(text)))
	}
	return n
}

// hold returns an open file with a lock. The lock ends with the last process that has the file open.
func hold(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// isHeld closes the file of hold, and reports whether another process has the file open.
func isHeld(t *testing.T, f *os.File) bool {
	t.Helper()
	_ = f.Close()
	again, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	return syscall.Flock(int(again.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// A process cannot outlive the child in the group of this process, or of another child.
func TestOtherGroups(t *testing.T) {
	python := testneeds.Python(t)
	if !inAdopter(t) {
		return
	}
	other := sh(t, t.Context(), "exec sleep 300")
	held := hold(t)
	p, err := child.Start(t.Context(), child.Spec{Path: python, ExtraFiles: []*os.File{held}, Args: []string{"-S", "-c", `
import os, sys, time
for group in sys.argv[1:]:
    if os.fork() == 0:
        try:
            os.setpgid(0, int(group))
        except PermissionError:
            pass
        os.write(1, b"go\n")
        time.sleep(1000)
time.sleep(1000)`, strconv.Itoa(syscall.Getpgrp()), strconv.Itoa(other.Pid())}})
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(p.Stdout)
	for range 2 { // both processes have begun
		if !out.Scan() {
			t.Fatal(p.Stderr())
		}
	}
	_ = p.Stop(0)
	if isHeld(t, held) {
		t.Error("a process is left")
	}
}

// Root's contained child sees its own processes only, and ends with all of them, without Adopt. It receives signals and
// ends like other children.
func TestContained(t *testing.T) {
	testneeds.Program(t, "unshare")
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("%s %v", out, err)
	}
	held := hold(t)
	p, err := child.Start(t.Context(), child.Spec{Path: "sh", ExtraFiles: []*os.File{held}, Contained: true,
		Args: []string{"-c", double + "for p in /proc/[0-9]*; do echo $p; done; exec sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	for in, n := bufio.NewScanner(p.Stdout), 0; n < 4 && in.Scan(); n++ {
		id, err := strconv.Atoi(strings.TrimPrefix(in.Text(), "/proc/"))
		if err != nil || id > 9 {
			t.Errorf("it sees %q", in.Text())
		}
	}
	for limit := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
		if u := p.Usage(child.Usage{Tasks: 10, Memory: 1 << 40}); u.Tasks == 2 {
			break
		} else if time.Now().After(limit) {
			t.Fatalf("%d processes", u.Tasks)
		}
	}
	var end *child.ExitError
	if err := p.Stop(time.Minute); !errors.As(err, &end) || end.Signal != syscall.SIGTERM {
		t.Error(err)
	}
	if isHeld(t, held) || child.LiveChildren() != 0 {
		t.Error("a process is left")
	}
	diesWithItsParent(t, "containing parent")
}

// Descendants of a child in new sessions are ended and reaped with the child; descendants of other children stay.
// Orphans that end are reaped.
func TestDescendants(t *testing.T) {
	if !inAdopter(t) {
		return
	}
	ordinary := exec.Command("sleep", "300") // not by Start
	if err := ordinary.Start(); err != nil {
		t.Fatal(err)
	}
	other := sh(t, t.Context(), double+"exec sleep 300")
	its := pids(t, other, 1)
	for name, end := range map[string]func(p *child.Process){
		"stopped": func(p *child.Process) { _ = p.Stop(0) },
		"killed":  func(p *child.Process) { _ = syscall.Kill(p.Pid(), syscall.SIGKILL); _ = p.Wait() },
	} {
		p := sh(t, t.Context(), direct+double+cleared+forged+"exec sleep 300")
		ids := pids(t, p, 4)
		began := time.Now()
		end(p)
		t.Logf("%s: %v", name, time.Since(began))
		for i, id := range ids {
			if there(id) {
				t.Errorf("%s: %d of %v is left", name, i, ids)
				_ = syscall.Kill(id, syscall.SIGKILL)
			}
		}
	}
	if !there(its[0]) {
		t.Error("the process of a child that runs was ended")
	}
	_ = other.Stop(0)
	if there(its[0]) {
		t.Error("a process of the other child is left")
	}
	ended := pids(t, sh(t, t.Context(), "(setsid sh -c 'echo $$' &) ; exec sleep 300"), 1)
	for limit := time.Now().Add(30 * time.Second); there(ended[0]); <-time.After(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("an orphan that has ended is not reaped")
		}
	}
	if !there(ordinary.Process.Pid) {
		t.Error("a process that Start has not started was ended")
	}
	if err := ordinary.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := ordinary.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
}

// KillOrphans kills the processes left by a killed process, and none of a living process, which may be a child.
func TestKillOrphans(t *testing.T) {
	parent, err := child.Start(t.Context(), child.Spec{Path: os.Args[0],
		Env: append(os.Environ(), "CHILD_TEST_ROLE=parent")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Stop(0) }()
	inner := pids(t, parent, 1)
	killer := exec.CommandContext(t.Context(), os.Args[0])
	killer.Env = append(os.Environ(), "CHILD_TEST_ROLE=killer")
	if out, err := killer.CombinedOutput(); err != nil {
		t.Errorf("%s %v", out, err)
	}
	if !there(inner[0]) {
		t.Error("a child of a child was killed")
	}
	own := pids(t, sh(t, t.Context(), double+"exec sleep 300"), 1)
	defer func() { _ = syscall.Kill(own[0], syscall.SIGKILL) }()
	// An orphan with a limit of locks from elsewhere, as in a container.
	foreign, err := exec.CommandContext(t.Context(), testneeds.Program(t, "prlimit"), "--locks=100:100", "sh", "-c",
		"setpriv --no-new-privs sleep 300 >&- 2>&- & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := strconv.Atoi(strings.TrimSpace(string(foreign)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(stranger, syscall.SIGKILL) }()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "CHILD_TEST_ROLE=leaving parent")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var left int
	if _, err := fmt.Fscan(out, &left); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("(%d)", left)
	has := func(killed []string) bool {
		return slices.ContainsFunc(killed, func(k string) bool { return strings.HasSuffix(k, name) })
	}
	if killed, err := child.KillOrphans(t.Context()); err != nil || has(killed) {
		t.Errorf("%v, %v: of a process that lives", killed, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }() // the process has ended, but is there
	// The variables of the process cannot be read during the exec of sleep. A server of another test may kill the
	// process first.
	for limit := time.Now().Add(30 * time.Second); there(left); {
		if killed, err := child.KillOrphans(t.Context()); err != nil || time.Now().After(limit) {
			t.Fatalf("%v, %v: want %s", killed, err, name)
		}
	}
	waitGone(t, left)
	if !there(own[0]) {
		t.Error("a process of this process was killed")
	}
	if !there(stranger) {
		t.Error("a process of another program was killed")
	}
}

// KillOrphans kills a process left by a contained child of a killed process, also a process that is in a new session,
// is not dumpable, has raised the soft limit of locks, and has the mark of a running process. KillOrphans spares the
// process while the parent of the child lives.
func TestKillHiddenOrphans(t *testing.T) {
	python := testneeds.Python(t)
	needSandbox(t)
	const script = `
import ctypes, os, resource, sys, time
if "_MILLRACE_CHILD" in os.environ and len(sys.argv) > 1:
    if os.fork():
        time.sleep(1000)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve(sys.executable, [sys.executable, "-S", "-c", sys.orig_argv[3]], {"_MILLRACE_CHILD": sys.argv[1]})
PR_SET_DUMPABLE, RLIMIT_LOCKS = 4, 10
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
hard = resource.getrlimit(RLIMIT_LOCKS)[1]
try:
    resource.setrlimit(RLIMIT_LOCKS, (hard, -1))
    print("error: the limit was raised")
except ValueError:
    resource.setrlimit(RLIMIT_LOCKS, (0, hard))
if os.fork():
    time.sleep(1000)
print(os.getpid(), flush=True)
time.sleep(1000)`
	namespace, err := os.Readlink("/proc/self/ns/pid")
	stat, err2 := os.ReadFile("/proc/1/stat")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	mark := fmt.Sprintf("%s/1/%s/1", namespace, strings.Fields(string(stat))[21])
	hidden, left := leaving(t, hold(t), python, "-S", "-c", script, mark)
	if _, err := child.KillOrphans(t.Context()); err != nil || !there(hidden) {
		t.Errorf("%v: the parent lives, the process: %v", err, there(hidden))
	}
	left()
	if _, err := child.KillOrphans(t.Context()); err != nil {
		t.Error(err)
	}
	waitGone(t, hidden) // a server of another test may have killed the process first
}

// KillOrphans ends processes left by a contained child of a killed process that start a process and end, in turn.
func TestKillOrphansInTurn(t *testing.T) {
	needSandbox(t)
	child.SetEndLimit(time.Minute) // other tests may use all processors
	program := compileForks(t, t.TempDir())
	for _, mode := range []string{"0", "3"} {
		held := hold(t)
		_, left := leaving(t, held, program, mode)
		left()
		if _, err := child.KillOrphans(t.Context()); err != nil {
			t.Errorf("mode %s: %v", mode, err)
		}
		if isHeld(t, held) {
			t.Errorf("mode %s: a process is left", mode)
		}
	}
}

// leaving starts a process with a contained child, which gets the open file, and returns the first number of the
// child's output. left kills the process.
func leaving(t *testing.T, file *os.File, args ...string) (number int, left func()) {
	t.Helper()
	// Without capabilities, root's child has no namespace.
	c := exec.CommandContext(t.Context(), testneeds.Program(t, "setpriv"), "--bounding-set=-all", os.Args[0])
	if os.Geteuid() != 0 {
		c = exec.CommandContext(t.Context(), os.Args[0])
	}
	c.Args, c.ExtraFiles = append(c.Args, args...), []*os.File{file}
	c.Env = append(os.Environ(), "CHILD_TEST_ROLE=hidden program's parent")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = fmt.Fscan(out, &number)
	}
	if err != nil {
		rest, _ := io.ReadAll(out)
		t.Fatalf("%v: %s", err, rest)
	}
	return number, func() {
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
	}
}

// BenchmarkStart starts a child and waits for its end.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		p, err := child.Start(b.Context(), child.Spec{Path: "true"})
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Wait()
		_ = p.Stop(0)
	}
}
