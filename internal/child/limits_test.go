//go:build linux

package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// A child of a process with a hard limit (ulimit -v) starts, and has the lower limit.
func TestHardLimit(t *testing.T) {
	const asked = "MILLRACE_HARD_LIMIT"
	if os.Getenv(asked) == "" {
		cmd := exec.Command("sh", "-c", `ulimit -v 16000000 && exec "$0" -test.run='^TestHardLimit$'`, os.Args[0])
		cmd.Env = append(os.Environ(), asked+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	p, err := Start(t.Context(), Spec{Path: "sh", Args: []string{"-c", "read x; ulimit -v"}, Stdin: true,
		Limits: Limits{AddressSpace: 64 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	if err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if in := bufio.NewScanner(p.Stdout); !in.Scan() || in.Text() != "16000000" {
		t.Errorf("%q: %v", in.Text(), in.Err())
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
