package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/testneeds"
)

// A signal to a process that has not ended its exec arrives after the exec, and the start does not hang. A process
// that is killed or stopped there is not started again, and the next process is traced.
func TestSignalBeforeExec(t *testing.T) {
	const asked = "MILLRACE_SIGNAL_BEFORE_EXEC"
	if os.Getenv(asked) == "" { // in a process without other children, because a failed test hangs
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSignalBeforeExec$", "-test.v")
		cmd.Env = append(os.Environ(), asked+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		} else if _, why, ok := strings.Cut(string(out), "--- SKIP"); ok {
			t.Skip(why)
		}
		return
	}
	first, err := Start(t.Context(), Spec{Path: "true", Limits: Limits{Strict: true}})
	if err != nil {
		t.Skip(err)
	}
	_ = first.Stop(0)
	script := filepath.Join(t.TempDir(), "script")
	testneeds.WriteProgram(t, script, "#!/bin/sh\ngrep SigBlk: /proc/self/status")
	for signal, want := range map[syscall.Signal]string{
		unix.SIGURG:  "", // a traced process stops, although the program ignores the signal
		unix.SIGTERM: script + ": ended by signal 15 (terminated)",
		unix.SIGKILL: "child: start " + script + ": " + script + ": ended by signal 9 (killed)",
		unix.SIGSTOP: "child: start " + script + ": another process has stopped the program before its start: try again",
		unix.SIGTRAP: "child: start " + script + ": another process has stopped the program before its start: try again",
	} {
		stops := signal == unix.SIGSTOP || signal == unix.SIGTRAP
		f, err := os.Open(script)
		if err != nil {
			t.Fatal(err)
		}
		// The exec waits for the end of the lease.
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skip("lease: ", err)
		}
		type result struct {
			out []byte
			err error
		}
		results := make(chan result, 1)
		go func() {
			p, err := Start(t.Context(), Spec{Path: script})
			if err != nil {
				results <- result{nil, err}
				return
			}
			out, _ := io.ReadAll(p.Stdout)
			results <- result{out, p.Wait()}
			_ = p.Stop(0)
		}()
		for lease := unix.F_WRLCK; lease == unix.F_WRLCK; time.Sleep(time.Millisecond) {
			if lease, err = unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0); err != nil {
				t.Fatal(err)
			}
			if len(results) > 0 {
				t.Fatalf("%v before its exec", <-results)
			}
		}
		pids, err := directChildren()
		if err != nil || len(pids) != 1 {
			t.Fatalf("%v, %v: want one child", pids, err)
		}
		if err := unix.Kill(pids[0], signal); err != nil {
			t.Fatal(err)
		}
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
			if err != nil || !stops && pending(t, text, signal) { // ended, or waits with the signal
				break
			}
			if strings.Contains(string(text), "(tracing stop)") && !stops {
				_ = unix.Kill(pids[0], unix.SIGKILL)
				t.Fatalf("%v: the process has stopped before its exec", signal)
			}
			time.Sleep(time.Millisecond)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Fatal(err)
		}
		got := <-results
		if want == "" && got.err != nil || want != "" && (got.err == nil || got.err.Error() != want) {
			t.Errorf("%v: %v; want %q", signal, got.err, want)
		}
		if f := strings.Fields(string(got.out)); want == "" && (len(f) < 2 || strings.Trim(f[1], "0") != "") {
			t.Errorf("the program blocks signals: %q", got.out)
		}
		if noTrace.Load() {
			t.Fatalf("%v: later children are not traced", signal)
		}
		_ = f.Close()
	}
}

// TestTooManyProcesses: the error of a start that a limit of processes refuses names the limits.
func TestTooManyProcesses(t *testing.T) {
	err := withHint(&os.PathError{Op: "fork/exec", Path: "/bin/true", Err: unix.EAGAIN})
	if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), "ulimit -u") {
		t.Error(err)
	}
}

// pending reports whether a signal to the process waits, by the text of /proc/PID/status.
func pending(t *testing.T, status []byte, signal syscall.Signal) bool {
	_, after, _ := strings.Cut(string(status), "\nShdPnd:\t")
	hex, _, ok := strings.Cut(after, "\n")
	if !ok {
		return false
	}
	set, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<(signal-1)) != 0 && signal != unix.SIGKILL
}
