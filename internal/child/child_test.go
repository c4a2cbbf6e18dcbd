package child_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// With CHILD_TEST_ROLE=parent the test binary is a program that starts a child and waits to be killed.
func TestMain(m *testing.M) {
	switch role := os.Getenv("CHILD_TEST_ROLE"); role {
	case "reach":
		reach()
		return
	case "leaving parent": // prints the output of its second child; the first is confined
		if child.SandboxError() == nil {
			if p, err := child.Start(context.Background(),
				child.Spec{Path: "true", Sandbox: &child.Sandbox{Read: system}}); err == nil {
				_ = p.Stop(0)
			}
		}
		p, err := child.Start(context.Background(),
			child.Spec{Path: "sh", Args: []string{"-c", "(setsid sh -c 'echo $$; exec sleep 300' &) ; exec sleep 300"}})
		if err != nil {
			fmt.Println("error", err)
			return
		}
		_, _ = io.Copy(os.Stdout, p.Stdout)
		return
	case "killer":
		if _, err := child.KillOrphans(context.Background()); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	case "hidden program's parent": // prints the output of its child
		if err := child.Adopt(context.Background()); err != nil {
			fmt.Println("error", err)
			return
		}
		s := &child.Sandbox{Read: append([]string{"/proc", filepath.Dir(os.Args[1])}, system...), NoCapabilities: true}
		p, err := child.Start(context.Background(), child.Spec{Path: os.Args[1], Args: os.Args[2:], Contained: true,
			ExtraFiles: []*os.File{os.NewFile(3, "")}, Sandbox: s})
		if err != nil {
			fmt.Println("error", err)
			return
		}
		_, _ = io.Copy(os.Stdout, p.Stdout)
		return
	case "parent", "confining parent", "containing parent":
		var s *child.Sandbox
		if role == "confining parent" {
			s = &child.Sandbox{Read: system}
		}
		p, err := child.Start(context.Background(), child.Spec{Path: "sleep", Args: []string{"1000"}, Sandbox: s,
			Contained: role == "containing parent"})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(p.Pid())
		select {}
	}
	goleak.VerifyTestMain(m)
}

// sh runs a shell script as a child and stops the child at the end of the test.
func sh(t *testing.T, ctx context.Context, script string, change ...func(*child.Spec)) *child.Process {
	t.Helper()
	spec := child.Spec{Path: "/bin/sh", Args: []string{"-c", script}}
	for _, c := range change {
		c(&spec)
	}
	p, err := child.Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(0) })
	return p
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestOutputAndExitStatusZero(t *testing.T) {
	p := sh(t, t.Context(), `echo out; echo err >&2`)
	out, err := io.ReadAll(p.Stdout)
	if err != nil || string(out) != "out\n" {
		t.Fatalf("stdout = %q, %v", out, err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("Wait = %v; want nil after exit status 0", err)
	}
	if got := p.Stderr(); got != "err\n" {
		t.Errorf("Stderr = %q", got)
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("Stop after a clean end = %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Signal after the end = %v; want os.ErrProcessDone", err)
	}
}

// On Linux the processor time of a child grows while the child runs, and is kept after its end.
func TestCPU(t *testing.T) {
	p := sh(t, t.Context(), `while :; do echo; done`)
	buffer := make([]byte, 1<<10)
	for at := time.Duration(0); ; {
		if _, err := p.Stdout.Read(buffer); err != nil {
			t.Fatal(err)
		}
		now := p.CPU()
		if now < at {
			t.Fatalf("%v after %v", now, at)
		}
		if at = now; at > 10*time.Millisecond || runtime.GOOS != "linux" {
			break
		}
	}
	last := p.CPU()
	_ = p.Stop(0)
	end := p.CPU()
	if end == 0 || end < last-time.Millisecond { // the final time is rounded to microseconds
		t.Errorf("%v at its end, and %v before", end, last)
	}
	if again := p.CPU(); again != end {
		t.Errorf("%v after %v at its end", again, end)
	}
}

func TestExitStatusAndLastLines(t *testing.T) {
	p := sh(t, t.Context(), `for i in 1 2 3 4 5; do echo "line $i" >&2; done; echo >&2; exit 7`)
	err := p.Wait()
	var ee *child.ExitError
	if !errors.As(err, &ee) {
		t.Fatalf("Wait = %v; want *ExitError", err)
	}
	if ee.Code != 7 || ee.Signal != 0 || ee.Stopped || ee.LastLines != "line 3 | line 4 | line 5" {
		t.Errorf("got %+v", ee)
	}
	if want := "/bin/sh: exit status 7: line 3 | line 4 | line 5"; err.Error() != want {
		t.Errorf("message %q; want %q", err, want)
	}
}

func TestChildKilledByAnotherProcess(t *testing.T) {
	p := sh(t, t.Context(), `echo ready; exec sleep 1000`)
	readLine(t, p)
	if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var ee *child.ExitError
	if err := p.Wait(); !errors.As(err, &ee) || ee.Signal != syscall.SIGKILL || ee.Stopped || ee.Code != -1 {
		t.Fatalf("Wait = %#v", err)
	}
}

func readLine(t *testing.T, p *child.Process) string {
	t.Helper()
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the child: %v", err)
	}
	return strings.TrimSpace(line)
}

func TestStopKillsAChildThatIgnoresSIGTERM(t *testing.T) {
	// The shell ignores SIGTERM, and its own child inherits this setting.
	p := sh(t, t.Context(), `trap '' TERM; sleep 1000 & echo $!; wait`)
	grandchild, _ := strconv.Atoi(readLine(t, p))
	var ee *child.ExitError
	if err := p.Stop(20 * time.Millisecond); !errors.As(err, &ee) || ee.Signal != syscall.SIGKILL || !ee.Stopped {
		t.Fatalf("Stop = %#v", err)
	}
	waitGone(t, grandchild)
}

func TestStopIsIdempotentAndConcurrent(t *testing.T) {
	p := sh(t, t.Context(), `echo ready; exec sleep 1000`)
	readLine(t, p)
	errs := make(chan error)
	for range 8 {
		go func() { errs <- p.Stop(time.Minute) }()
	}
	for range 8 {
		var ee *child.ExitError
		if err := <-errs; !errors.As(err, &ee) || ee.Signal != syscall.SIGTERM || !ee.Stopped {
			t.Errorf("Stop = %v", err)
		}
	}
	first, second := p.Stop(0), p.Wait()
	if first != second {
		t.Errorf("Stop and Wait differ after the end: %v, %v", first, second)
	}
}

func TestStopUnblocksReaderAndChildStuckInWriting(t *testing.T) {
	// The child fills the pipe and ignores SIGTERM: only the closed pipe can end the child before the long grace.
	p := sh(t, t.Context(), `trap '' TERM; exec cat /dev/zero`)
	if _, err := io.ReadFull(p.Stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(time.Hour); err == nil {
		t.Error("cat ended without an error though its pipe was closed")
	}

	q := sh(t, t.Context(), `exec sleep 1000`)
	read := make(chan error)
	go func() { _, err := q.Stdout.Read(make([]byte, 1)); read <- err }()
	_ = q.Stop(0)
	if err := <-read; !errors.Is(err, os.ErrClosed) && err != io.EOF {
		t.Errorf("blocked Read ended with %v", err)
	}
}

func TestContextEndsTheChild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := sh(t, ctx, `echo ready; exec sleep 1000`)
	readLine(t, p)
	cancel()
	var ee *child.ExitError
	if err := p.Wait(); !errors.As(err, &ee) || !ee.Stopped {
		t.Fatalf("Wait = %v", err)
	}
	if _, err := child.Start(ctx, child.Spec{Path: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context = %v", err)
	}
}

func TestRestOfTheGroupIsKilledWithItsLeader(t *testing.T) {
	p := sh(t, t.Context(), `sleep 1000 & echo $!`)
	orphan, _ := strconv.Atoi(readLine(t, p))
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, orphan)
}

func TestGrandchildOutsideTheGroupDoesNotDelayWait(t *testing.T) {
	p := sh(t, t.Context(), `setsid sh -c 'echo $$; exec sleep 1000' & read x; echo last >&2`, func(s *child.Spec) {
		s.Stdin = true
	})
	outside, _ := strconv.Atoi(readLine(t, p))
	_, _ = io.WriteString(p.Stdin, "go\n")
	defer func() { _ = syscall.Kill(outside, syscall.SIGKILL) }()
	if err := p.Wait(); err != nil { // the grandchild holds stderr open for 1000 s
		t.Fatal(err)
	}
	if p.Stderr() != "last\n" {
		t.Errorf("Stderr = %q", p.Stderr())
	}
}

func TestStartErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	testneeds.WriteProgram(t, plain, "#!/no/such/interpreter\n")
	before := openFiles(t)
	for name, c := range map[string]struct {
		spec child.Spec
		want error
		text string
	}{
		"name":        {child.Spec{Path: "millrace-no-such-program"}, exec.ErrNotFound, "millrace-no-such-program"},
		"path":        {child.Spec{Path: "/no/such/program"}, os.ErrNotExist, "/no/such/program"},
		"interpreter": {child.Spec{Path: plain}, os.ErrNotExist, plain},
		"folder":      {child.Spec{Path: "true", Dir: "/no/such/dir"}, os.ErrNotExist, "true"},
		"pipe size":   {child.Spec{Path: "true", PipeSize: 2 << 20}, nil, "PipeSize is 2097152"},
		"two inputs":  {child.Spec{Path: "true", Stdin: true, StdinFile: os.Stdin}, nil, "want one of them"},
	} {
		p, err := child.Start(t.Context(), c.spec)
		if err == nil {
			_ = p.Stop(0)
			t.Errorf("%s: started", name)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after failed starts", before, after)
	}
	if child.LiveChildren() != 0 {
		t.Errorf("Live = %d", child.LiveChildren())
	}
}

func TestStdinExtraFilesEnvDir(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := sh(t, t.Context(), `read x; echo "$x $WORD $(pwd)"; echo extra >&3`, func(s *child.Spec) {
		s.Stdin, s.Env, s.Dir, s.ExtraFiles = true, []string{"WORD=word"}, dir, []*os.File{w}
	})
	_ = w.Close()
	if _, err := io.WriteString(p.Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, p); got != "hello word "+dir {
		t.Errorf("got %q", got)
	}
	extra, _ := io.ReadAll(r)
	_ = r.Close()
	if string(extra) != "extra\n" {
		t.Errorf("descriptor 3 gave %q", extra)
	}
}

// Write writes all parts in order, also more than the pipe holds, and fails when the child has ended.
func TestWriteOfSeveralParts(t *testing.T) {
	p := sh(t, t.Context(), "cat; exec sleep 1000", func(s *child.Spec) { s.Stdin = true })
	var want []byte
	parts := [][]byte{[]byte("head"), nil, bytes.Repeat([]byte("0123456789"), 30_000), []byte("x"),
		bytes.Repeat([]byte("ab"), 70_000)}
	for _, b := range parts {
		want = append(want, b...)
	}
	const times = 3
	wrote := make(chan error, 1)
	go func() {
		var err error
		for range times {
			err = errors.Join(err, p.Write(parts...))
		}
		wrote <- err
	}()
	got := make([]byte, times*len(want))
	if _, err := io.ReadFull(p.Stdout, got); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil || !bytes.Equal(got, bytes.Repeat(want, times)) {
		t.Errorf("%v, or other bytes came back", err)
	}
	small := [][]byte{[]byte("head"), nil, []byte("rest")}
	into := make([]byte, 8)
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Write(small...); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.Stdout, into); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	_ = p.Stop(0)
	if err := p.Write(parts...); err == nil {
		t.Error("a write to a child that has ended succeeds")
	}
}

func TestStdinFile(t *testing.T) {
	first := sh(t, t.Context(), `echo one; echo two`)
	second := sh(t, t.Context(), `exec cat`, func(s *child.Spec) { s.StdinFile = first.Stdout })
	out, err := io.ReadAll(second.Stdout)
	if err != nil || string(out) != "one\ntwo\n" {
		t.Fatalf("got %q, %v", out, err)
	}
}

func TestPipeIsEnlarged(t *testing.T) {
	wrote := make(chan string, 1)
	// The child writes 200 KB although nobody reads the pipe.
	_ = sh(t, t.Context(), `head -c 200000 /dev/zero; echo done >&2; exec sleep 1000`, func(s *child.Spec) {
		s.PipeSize = 256 << 10
		s.OnStderr = func(l []byte) { wrote <- string(l) }
	})
	if got := <-wrote; got != "done" {
		t.Errorf("the child said %q", got)
	}
}

func TestStderrTailAndLines(t *testing.T) {
	var lines []string
	p := sh(t, t.Context(), `i=0; while [ $i -lt 100 ]; do echo "line $i" >&2; i=$((i+1)); done; printf `+
		`'a\rb\r\nlast' >&2`,
		func(s *child.Spec) {
			s.StderrBytes = 50
			s.OnStderr = func(l []byte) { lines = append(lines, string(l)) }
		})
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := p.Stderr(); len(got) != 50 || !strings.HasSuffix(got, "line 99\na\rb\r\nlast") {
		t.Errorf("Stderr = %q", got)
	}
	if len(lines) != 103 || lines[99] != "line 99" || lines[100] != "a" || lines[101] != "b" || lines[102] != "last" {
		t.Errorf("%d lines, the last are %q", len(lines), lines[len(lines)-3:])
	}
}

func TestVeryLongLineArrivesInPieces(t *testing.T) {
	total, longest := 0, 0
	p := sh(t, t.Context(), `head -c 100000 /dev/zero | tr '\0' x >&2`, func(s *child.Spec) {
		s.OnStderr = func(l []byte) { total += len(l); longest = max(longest, len(l)) }
	})
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if total != 100000 || longest > 8<<10 {
		t.Errorf("%d bytes, the longest piece %d", total, longest)
	}
}

// The kernel kills a child when its parent is killed. The parent is a separate process here.
func TestChildDiesWhenItsParentIsKilled(t *testing.T) {
	diesWithItsParent(t, "parent")
}

func diesWithItsParent(t *testing.T, role string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHILD_TEST_ROLE="+role)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || perr != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the parent said %q (%v)", line, err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child %d does not run: %v", pid, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitGone(t, pid)
}

// Of two variables with the same name, the child has only the later: Python takes the first, a shell the last.
func TestLaterVariableHolds(t *testing.T) {
	p, err := child.Start(t.Context(), child.Spec{Path: "env", Env: []string{"A=1", "B=1", "A=2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	out, err := io.ReadAll(p.Stdout)
	if its, _, _ := strings.Cut(string(out), "_MILLRACE_CHILD="); err != nil || its != "B=1\nA=2\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestManyChildrenLeakNothing(t *testing.T) {
	warm := sh(t, t.Context(), `exit 0`)
	_ = warm.Stop(0)
	before := openFiles(t)
	for i := range 60 {
		p, err := child.Start(t.Context(), child.Spec{Path: "sleep", Args: []string{"1000"},
			PipeSize: child.MaxPipeSize, Stdin: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		if child.LiveChildren() != 1 {
			t.Fatalf("Live = %d; want 1", child.LiveChildren())
		}
		_ = p.Stop(time.Duration(i%3) * time.Second)
	}
	if after := openFiles(t); after != before || child.LiveChildren() != 0 {
		t.Errorf("descriptors %d before, %d after; Live = %d", before, after, child.LiveChildren())
	}
}

func TestManyAtOnce(t *testing.T) {
	errs := make(chan error)
	for i := range 40 {
		go func() {
			p, err := child.Start(context.Background(),
				child.Spec{Path: "sh", Args: []string{"-c", "echo $0; exit 3", strconv.Itoa(i)}})
			if err != nil {
				errs <- err
				return
			}
			out, _ := io.ReadAll(p.Stdout)
			if strings.TrimSpace(string(out)) != strconv.Itoa(i) {
				errs <- fmt.Errorf("child %d said %q", i, out)
				return
			}
			var ee *child.ExitError
			if err := p.Stop(time.Second); !errors.As(err, &ee) || ee.Code != 3 {
				errs <- fmt.Errorf("child %d: %v", i, err)
				return
			}
			errs <- nil
		}()
	}
	for range 40 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if child.LiveChildren() != 0 {
		t.Errorf("Live = %d", child.LiveChildren())
	}
}

// The child's standard error is read before the output written afterwards, even when the reading goroutine has not
// run.
func TestReadStderr(t *testing.T) {
	lines := 0
	p := sh(t, t.Context(), `i=0; while [ $i -lt 500 ]; do echo line >&2; echo out; read -r go; i=$((i+1)); done; `+
		`exec cat`,
		func(s *child.Spec) { s.Stdin, s.OnStderr = true, func([]byte) { lines++ } })
	out := bufio.NewReader(p.Stdout)
	for i := range 500 {
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		p.ReadStderr()
		if lines != i+1 {
			t.Fatalf("%d lines after output %d", lines, i+1)
		}
		if _, err := p.Stdin.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, p.ReadStderr); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = p.Stop(0)
	p.ReadStderr() // does nothing
}

// BenchmarkReadStderr is the cost for a child that has written nothing.
func BenchmarkReadStderr(b *testing.B) {
	p, err := child.Start(b.Context(), child.Spec{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	for b.Loop() {
		p.ReadStderr()
	}
}
