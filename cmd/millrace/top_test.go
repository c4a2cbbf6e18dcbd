package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/client"
	"millrace/stream"
)

// terminal is a pseudo-terminal with a program in it.
type terminal struct {
	t    *testing.T
	user *os.File // where a person reads and types
	cmd  *exec.Cmd
	was  *unix.Termios // of the program's end, before the program
	done chan error

	mu   sync.Mutex
	text bytes.Buffer // all that was written
	more chan struct{}
}

// openTerminal starts a program in a new terminal of a size.
func openTerminal(t *testing.T, width, height int, c *exec.Cmd) *terminal {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	fd := int(user.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	x := &terminal{t: t, user: user, cmd: c, done: make(chan error, 1), more: make(chan struct{}, 1)}
	x.resize(width, height)
	if x.was, err = unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.Env = append(c.Env, "TERM=xterm")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	go x.read()
	go func() {
		x.done <- c.Wait()
		now, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil || !reflect.DeepEqual(now, x.was) {
			t.Errorf("the terminal is not as it was: %+v, %v", now, err)
		}
		close(x.done)
	}()
	return x
}

func (x *terminal) resize(width, height int) {
	x.t.Helper()
	if err := unix.IoctlSetWinsize(int(x.user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) read() {
	b := make([]byte, 4096)
	for {
		n, err := x.user.Read(b)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.text.Write(b[:n])
		x.mu.Unlock()
		select {
		case x.more <- struct{}{}:
		default:
		}
	}
}

// all returns all that was written.
func (x *terminal) all() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// screen waits for a whole view that has what is wanted, and returns its lines.
func (x *terminal) screen(what string, wanted func(lines []string) bool) (found []string) {
	x.t.Helper()
	x.until("a view with "+what, func(text string) bool {
		for _, v := range strings.Split(text, "\x1b[H")[1:] {
			if v, whole := strings.CutSuffix(v, "\x1b[J"); whole {
				if found = strings.Split(strings.ReplaceAll(v, "\x1b[K", ""), "\r\n"); wanted(found) {
					return true
				}
			}
		}
		return false
	})
	return found
}

// until waits until all that was written is as wanted, and returns it. What a program
// writes right before it ends may come after its end.
func (x *terminal) until(what string, wanted func(text string) bool) string {
	x.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		text := x.all()
		if wanted(text) {
			return text
		}
		select {
		case <-x.more:
		case <-limit:
			x.t.Fatalf("not seen: %s; the end is %q", what, text[max(len(text)-2000, 0):])
		}
	}
}

func (x *terminal) key(k string) {
	x.t.Helper()
	if _, err := io.WriteString(x.user, k); err != nil {
		x.t.Fatal(err)
	}
}

// has returns a check for a view with a line that has all the words.
func has(words ...string) func([]string) bool {
	return func(lines []string) bool {
	next:
		for _, l := range lines {
			for _, w := range words {
				if !strings.Contains(l, w) {
					continue next
				}
			}
			return true
		}
		return false
	}
}

// fits checks that a view has at most height lines of at most width characters.
func fits(t *testing.T, lines []string, width, height int) {
	t.Helper()
	if len(lines) > height {
		t.Errorf("%d lines in a terminal of %d:\n%s", len(lines), height, strings.Join(lines, "\n"))
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > width {
			t.Errorf("%d characters in a terminal of %d: %q", n, width, l)
		}
	}
}

// TestTopInATerminal runs top in a terminal of 80x24, sends frames, makes the terminal
// smaller, ends the server and quits.
func TestTopInATerminal(t *testing.T) {
	p, addr := serve(t, "--model", "echo=identity", "--model", "a-model-with-a-long-name=delay,fixed=1ms")
	c := command(t, "top", "--interval", "100ms", "--addr", addr)
	c.Env = append(c.Env, "NO_COLOR=1")
	x := openTerminal(t, 80, 24, c)
	lines := x.screen("models", has("echo", "ready", "0/1"))
	fits(t, lines, 80, 24)
	if !has("a-model-w…", "ready")(lines) || !has("millrace v1.2.3", addr, "ready", "up ")(lines) || !has("connections http", "sessions", "goroutines")(lines) {
		t.Errorf("%q", lines)
	}

	cl, err := client.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	in := []stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}}}
	stop := make(chan struct{})
	var sender sync.WaitGroup
	defer sender.Wait()
	defer close(stop)
	sender.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = cl.Infer(t.Context(), "echo", client.Request{Inputs: in})
			}
		}
	})
	lines = x.screen("rates", func(lines []string) bool {
		for _, l := range lines {
			if f := strings.Fields(l); len(f) == 11 && f[0] == "echo" && f[4] != "0" && f[5] != "0" && f[8] != "0" && f[10] == "1.0" {
				return true
			}
		}
		return false
	})
	fits(t, lines, 80, 24)

	x.resize(50, 6)
	fits(t, x.screen("the smaller size", func(lines []string) bool {
		return len(lines) == 6 && has("MODEL", "out/s")(lines) && has("... 2 more")(lines)
	}), 50, 6)
	if _, code := p.signal(os.Interrupt); code != 0 {
		t.Errorf("the server's exit status is %d", code)
	}
	x.screen("the problem", has("trying again"))
	x.key("q")
	if code := status(t, <-x.done); code != 0 {
		t.Errorf("exit status %d", code)
	}
	<-x.done
	text := x.until("the screen is left", func(text string) bool { return strings.Contains(text, leaveScreen) })
	if !strings.HasPrefix(text, enterScreen) || strings.Contains(text, "\x1b[3") {
		t.Errorf("no screen of its own, or colours: %q", text[max(0, len(text)-300):])
	}
}

// TestTopColours checks that a terminal has colours without NO_COLOR.
func TestTopColours(t *testing.T) {
	_, addr := serve(t, "--model", "echo=identity")
	x := openTerminal(t, 100, 30, command(t, "top", "--interval", "100ms", "--addr", addr))
	x.screen("bold titles", has(bold+"MODEL"))
	x.key("\x03")
	if code := status(t, <-x.done); code != 0 {
		t.Errorf("exit status %d", code)
	}
	<-x.done
}

// TestTopOnce checks the forms that are not a screen, and a server that is not there.
func TestTopOnce(t *testing.T) {
	p, addr := serve(t, "--model", "echo=identity")
	out, stderr, code := millrace(t, "top", "--once", "--interval", "100ms", "--addr", addr)
	if code != 0 || !strings.Contains(out, "MODEL") || !strings.Contains(out, "echo") || strings.Contains(out, "\x1b") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	var v topView
	out, stderr, code = millrace(t, "top", "--once", "--json", "--interval", "100ms", "--addr", addr)
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v.Seconds < 0.05 || len(v.Models) != 1 || v.Models[0].Workers != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"now"}} {
		if _, stderr, code := millrace(t, append([]string{"top", "--addr", addr}, args...)...); code != 2 || !strings.Contains(stderr, args[0]) {
			t.Errorf("%v: exit status %d\n%s", args, code, stderr)
		}
	}
	p.signal(os.Interrupt)
	if _, stderr, code := millrace(t, "top", "--once", "--addr", addr); code != 1 || !strings.Contains(stderr, "start a server") {
		t.Errorf("without a server: exit status %d\n%s", code, stderr)
	}
}

// TestTopView compares rates with the counters that they come from.
func TestTopView(t *testing.T) {
	began := time.Now()
	at := func(seconds float64, m client.ModelStatus, s client.ServerStream) topSample {
		m.Name, m.State, s.Name, s.State = "m", "READY", "cam", "running"
		st := client.Status{Started: began, Time: began.Add(time.Duration(seconds * float64(time.Second))), State: "ready", Version: "v"}
		st.Process.CPUSeconds = seconds / 2
		st.Models = []client.ModelStatus{m}
		return topSample{st, []client.ServerStream{s}}
	}
	total := client.Histogram{Bounds: []uint64{1000, 2000}, Counts: []uint64{10, 0}}
	later := client.Histogram{Bounds: []uint64{1000, 2000}, Counts: []uint64{10, 4}, Sum: 7000}
	last := began.Add(9 * time.Second)
	before := at(10, client.ModelStatus{Accepted: 10, Results: 5, Drops: map[string]uint64{"stale": 1}, StagesUS: client.StageHistograms{Total: total}}, client.ServerStream{Frames: 7})
	now := at(12, client.ModelStatus{Accepted: 30, Results: 9, Drops: map[string]uint64{"stale": 2, "memory": 5}, Errors: map[string]uint64{"internal": 1}, StagesUS: client.StageHistograms{Total: later}}, client.ServerStream{Frames: 27, Last: &last})
	v := newTopView("a", before, now)
	m, s := v.Models[0], v.Streams[0]
	if v.Seconds != 2 || v.CPU != 0.5 || m.In != 10 || m.Results != 2 || m.Drops != 3 || m.Errors != 0.5 || m.P50 != 1.5 || s.FPS != 10 || s.AgeSeconds != 3 {
		t.Errorf("%+v", v)
	}
	v = newTopView("a", now, before) // a model that was loaded again
	if m := v.Models[0]; m.In < 0 || m.Results < 0 {
		t.Errorf("%+v", m)
	}
	other := at(13, client.ModelStatus{Accepted: 1000}, client.ServerStream{})
	other.status.Started = began.Add(time.Hour)
	if v := newTopView("a", now, other); v.Models[0].In != 0 || v.Seconds != 0 {
		t.Errorf("of another server: %+v", v.Models[0])
	}
	for width := range 130 {
		for height := 1; height < 12; height++ {
			fits(t, v.lines(width, height, false), width, height)
		}
	}
}

func TestNumbersOfTop(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.04: "0.0", 9.96: "10.0", 99.94: "99.9", 99.96: "100", 12345.6: "12346", 99999.6: "100k", 1234567: "1.2M"} {
		if got := number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	if got := cut("a\x1b[31mb\nc", 8); got != "a [31mb…" {
		t.Errorf("%q", got)
	}
}
