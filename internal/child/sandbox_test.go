package child_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
)

// system are folders with files needed by programs to start.
var system = []string{"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"}

// reach makes the attempts listed in the variable CHILD_TEST_TRY, lines such as "read /etc/passwd", and prints the
// results.
func reach() {
	for line := range strings.Lines(os.Getenv("CHILD_TEST_TRY")) {
		line = strings.TrimSpace(line)
		what, arg, _ := strings.Cut(line, " ")
		var err error
		dial := func(network string) {
			var c net.Conn
			if c, err = net.Dial(network, arg); err == nil {
				_ = c.Close()
			}
		}
		switch what {
		case "read":
			_, err = os.ReadFile(arg)
		case "list":
			_, err = os.ReadDir(arg)
		case "write":
			err = os.WriteFile(arg, []byte("x"), 0o600)
		case "truncate":
			err = os.Truncate(arg, 0)
		case "remove":
			err = os.Remove(arg)
		case "mkdir":
			err = os.Mkdir(arg, 0o700)
		case "exec":
			err = exec.Command(arg).Run()
		case "listen":
			var l net.Listener
			if l, err = net.Listen("tcp", arg); err == nil {
				_ = l.Close()
			}
		case "rename":
			from, to, _ := strings.Cut(arg, " ")
			err = os.Rename(from, to)
		case "limit":
			pid, _ := strconv.Atoi(arg)
			err = limit(pid)
		case "signal":
			pid, _ := strconv.Atoi(arg)
			err = syscall.Kill(pid, syscall.SIGCONT)
		default:
			dial(what)
		}
		if err != nil {
			err = fmt.Errorf("refused")
		}
		fmt.Println(line, err)
	}
}

// try returns the attempts that succeeded in a child of this program.
func try(t *testing.T, s *child.Sandbox, attempts ...string) (reached []string) {
	t.Helper()
	if s != nil {
		s.Read = append(s.Read, system...)
	}
	p, err := child.Start(t.Context(), child.Spec{
		Path: os.Args[0], Sandbox: s,
		Env: append(os.Environ(), "CHILD_TEST_ROLE=reach", "CHILD_TEST_TRY="+strings.Join(attempts, "\n")),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(0) }()
	out, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := p.Wait(); err != nil || len(said) != len(attempts) {
		t.Fatalf("%q, %v", said, err)
	}
	for _, line := range said {
		if what, ok := strings.CutSuffix(line, " <nil>"); ok {
			reached = append(reached, what)
		}
	}
	return reached
}

func needSandbox(t *testing.T) {
	t.Helper()
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
}

// accept accepts connections at an address until the test ends.
func accept(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// A confined child reaches only the resources of its Sandbox, under any user. The reach of this process and other
// children stays the same.
func TestSandbox(t *testing.T) {
	needSandbox(t)
	given, other := t.TempDir(), t.TempDir()
	file, hidden := filepath.Join(given, "file"), filepath.Join(other, "hidden")
	for _, name := range []string{file, hidden} {
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(given, "link")
	if err := os.Symlink(hidden, link); err != nil {
		t.Fatal(err)
	}
	tcp, second, tcp6 := accept(t, "tcp", "127.0.0.1:0"), accept(t, "tcp", "127.0.0.1:0"), accept(t, "tcp", "[::1]:0")
	local, abstract := accept(t, "unix", filepath.Join(given, "socket")),
		accept(t, "unix", fmt.Sprintf("@millrace-test-%d", os.Getpid()))
	_, text, _ := net.SplitHostPort(tcp)
	port, _ := strconv.ParseUint(text, 10, 16)
	files := []string{
		"read " + file, "list " + given, "exec /bin/true", // allowed
		"read " + hidden, "read " + link, "list " + other, "read /etc/passwd", "read /proc/self/environ",
		fmt.Sprintf("read /proc/%d/environ", os.Getpid()),
		"write " + file, "truncate " + file, "remove " + file, "write " + filepath.Join(given, "new"),
		"write " + filepath.Join(other, "new"), "mkdir " + filepath.Join(given, "folder"),
	}
	network := []string{"tcp " + tcp, "tcp " + second, "tcp " + tcp6, "udp " + tcp, "unix " + local,
		"unix " + abstract, "listen 127.0.0.1:0", fmt.Sprintf("signal %d", os.Getpid()),
		fmt.Sprintf("limit %d", os.Getpid())}
	all := slices.Concat(files, network)

	if got := try(t, &child.Sandbox{Read: []string{given, "/no/such/folder"}}, all...); !slices.Equal(got, files[:3]) {
		t.Errorf("without sockets it reaches %q", got)
	}
	if got := try(t, &child.Sandbox{Read: []string{file}}, files[:2]...); !slices.Equal(got, files[:1]) {
		t.Errorf("with one file it reaches %q", got)
	}
	want := []string{"tcp " + tcp}
	if child.LandlockABI() < 4 {
		want = append(want, "tcp "+second)
	}
	if got := try(t, &child.Sandbox{Connect: []uint16{uint16(port)}}, network...); !slices.Equal(got, want) {
		t.Errorf("with a port it reaches %q", got)
	}
	want = network[:5]
	want = append(slices.Clone(want), "listen 127.0.0.1:0")
	if child.LandlockABI() < 6 {
		want = network[:7]
	}
	if got := try(t, &child.Sandbox{Network: true}, network...); !slices.Equal(got, want) {
		t.Errorf("with the network it reaches %q", got)
	}
	if got := contents(t, file); got != "text" {
		t.Errorf("the file has %q", got)
	}
	if got := try(t, nil, all...); !slices.Equal(got, all) {
		t.Errorf("another child reaches %q", got)
	}
	diesWithItsParent(t, "confining parent")
}

// A confined child changes only the paths in Write, and has its own temporary folder while running.
func TestSandboxWrite(t *testing.T) {
	needSandbox(t)
	given, sub, names, other := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{given, sub, names, other} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := filepath.Join(other, "file")
	allowed := []string{
		"read " + given + "/file", "truncate " + given + "/file", "mkdir " + given + "/a", "write " + given + "/a/new",
		"rename " + given + "/a/new " + given + "/moved", "remove " + given + "/moved", "list " + given,
		"write " + one, "list " + names,
	}
	refused := []string{
		"write " + other + "/new", "remove " + one, "list " + other, "rename " + given + "/file " + sub + "/stolen",
		"rename " + sub + "/file " + given + "/stolen", "write " + sub + "/new", "write " + sub + "/file",
		"read " + names + "/file", "write " + names + "/new", "write " + os.TempDir() + "/millrace-test-new",
		"signal 1",
	}
	s := &child.Sandbox{Read: []string{sub}, List: []string{names}, Write: []string{given, one, "/no/such/folder"}}
	if child.LandlockABI() < 6 {
		refused = refused[:len(refused)-1]
	}
	if got := try(t, s, slices.Concat(allowed, refused)...); !slices.Equal(got, allowed) {
		t.Errorf("it reaches %q", got)
	}

	t.Setenv("TMPDIR", t.TempDir())
	for _, s := range []*child.Sandbox{nil, {Read: system}} {
		p, err := child.Start(t.Context(), child.Spec{Path: "sh",
			Args: []string{"-c", `echo text >$TMPDIR/file && mkdir $TMPDIR/folder && echo $TMPDIR`}, Sandbox: s,
			Temp: true})
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(p.Stdout)
		dir := strings.TrimSpace(string(out))
		if err != nil || filepath.Dir(dir) != os.TempDir() || p.Wait() != nil {
			t.Errorf("%q, %v, %v", out, err, p.Wait())
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
		_ = p.Stop(0)
		if s != nil && len(s.Write) > 0 {
			t.Errorf("the caller's sandbox has %q", s.Write)
		}
	}
	if _, err := child.Start(t.Context(), child.Spec{Path: "/etc/hostname", Temp: true}); err == nil {
		t.Error("a file that is no program was started")
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "millrace-child-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// No child can gain rights beyond this process, and this process keeps its own rights.
func TestNoNewPrivileges(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("for Linux")
	}
	setting := func(status string) string {
		_, after, _ := strings.Cut(status, "NoNewPrivs:")
		return strings.Fields(after)[0]
	}
	if setting(contents(t, "/proc/self/status")) == "1" {
		t.Skip("this process has no_new_privs already")
	}
	for range 20 {
		p := sh(t, t.Context(), "cat /proc/self/status")
		if out, err := io.ReadAll(p.Stdout); err != nil || setting(string(out)) != "1" {
			t.Fatalf("%s, %v", out, err)
		}
		_ = p.Wait()
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for end := time.Now().Add(30 * time.Second); ; { // the threads of the children end soon after the children
		left := 0
		for _, name := range threads {
			if text, err := os.ReadFile(name); err == nil && setting(string(text)) == "1" {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d threads are restricted", left)
		}
		runtime.Gosched()
	}
}
