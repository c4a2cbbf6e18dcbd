package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/clip"
	"millrace/internal/testneeds"
)

const testVersion = "v1.2.3"

// runsMain is the variable that makes the test binary run as the program itself.
const runsMain = "TEST_BINARY_RUNS_MAIN"

var scratch string // a folder for all tests

func TestMain(m *testing.M) {
	if os.Getenv(runsMain) != "" {
		version, completeTime = testVersion, time.Minute
		main()
	}
	for _, e := range os.Environ() { // of commands in this process
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "MILLRACE_") {
			_ = os.Unsetenv(name)
		}
	}
	version, completeTime = testVersion, time.Minute
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-cmd-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		scratch = dir
		return m.Run()
	}())
}

// command prepares a run of the program with a clean environment.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MILLRACE_") && !strings.HasPrefix(e, "XDG_CACHE_HOME=") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, runsMain+"=1", "XDG_CACHE_HOME="+filepath.Join(scratch, "cache"))
	c.Dir = t.TempDir()
	return c
}

func status(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return 0
}

// inThisProcess are commands that ask a server or write files. Such a command runs in the process of the tests, which
// takes a tenth of the processor time of a new process. Other commands change their process, or run models in it.
var inThisProcess = []string{"__complete", "api-schema", "bench", "config", "data", "examples", "health", "infer",
	"init", "keys", "log-level", "man", "models", "stream", "streams", "tasks", "version"}

// millrace runs the program to its end.
func millrace(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	if len(args) > 0 && slices.Contains(inThisProcess, args[0]) {
		return executed(t, args...)
	}
	return finish(t, command(t, args...))
}

// executed runs a command to its end in the process of the tests.
func executed(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs safeBuffer
	root := newRoot()
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	args = append([]string{}, args...) // for nil, cobra takes the arguments of the tests
	code = execute(t.Context(), root, args, &errs)
	return out.String(), errs.String(), code
}

func finish(t *testing.T, c *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	code = status(t, c.Run())
	return out.String(), errs.String(), code
}

// process is a running program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Reader
	stderr safeBuffer
	end    func() error
}

// safeBuffer can be read while a program writes to the buffer.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func begin(t *testing.T, c *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: c}
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = &p.stderr
	p.lines = bufio.NewReader(pipe)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.end = sync.OnceValue(func() error {
		_, _ = io.Copy(io.Discard, p.lines)
		return c.Wait()
	})
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = p.end()
	})
	return p
}

// until reads standard output up to the line with the words, and returns the line.
func (p *process) until(words string) string {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		if strings.Contains(line, words) {
			return line
		}
		if err != nil {
			err := p.end()
			p.t.Fatalf("the output ended before %q: %v\n%s", words, err, &p.stderr)
		}
	}
}

// signal sends sig, and returns the rest of standard output and the exit status.
func (p *process) signal(sig os.Signal) (rest string, code int) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	text, err := io.ReadAll(p.lines)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text), status(p.t, p.end())
}

var httpAddr = regexp.MustCompile(`http://(\S+)`)

// serve starts a server and returns the server's address.
func serve(t *testing.T, args ...string) (p *process, addr string) {
	t.Helper()
	return readyServer(t, command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "off"}, args...)...))
}

// readyServer starts a server and returns the server's address.
func readyServer(t *testing.T, c *exec.Cmd) (p *process, addr string) {
	t.Helper()
	p = begin(t, c)
	m := httpAddr.FindStringSubmatch(p.until("millrace is ready: "))
	if m == nil {
		t.Fatal("the line of a ready server has no address")
	}
	return p, m[1]
}

var rendered struct {
	sync.Once
	file string
	err  error
}

// clipFile returns a clip of two seconds, drawn once.
func clipFile(t *testing.T) string {
	t.Helper()
	ffmpeg := testneeds.Program(t, "ffmpeg")
	rendered.Do(func() {
		s := clip.Settings{Width: 640, Height: 480, Seconds: 2, FPS: 15, Seed: 1}
		rendered.file, rendered.err = clip.Write(context.Background(), s, ffmpeg, filepath.Join(scratch, "clip"),
			io.Discard)
	})
	if rendered.err != nil {
		t.Fatal(rendered.err)
	}
	return rendered.file
}
