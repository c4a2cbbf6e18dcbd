package main

import (
	"bytes"
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

// terminal is a pseudo-terminal with a program inside.
type terminal struct {
	t    *testing.T
	user *os.File // where a person reads and types
	cmd  *exec.Cmd
	was  *unix.Termios // of the program's end, before the program
	done chan error

	mu   sync.Mutex
	text bytes.Buffer // all text written so far
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
	if err := unix.IoctlSetWinsize(int(x.user.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: uint16(width), Row: uint16(height)}); err != nil {
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

// all returns all text written so far.
func (x *terminal) all() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// screen waits for a whole view accepted by wanted, and returns the view's lines.
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

// until waits until wanted accepts all text written so far, and returns the text. Text written by a program right
// before its end may arrive after the program's end.
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

// has returns a check for a view with a line with all the words.
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

// TestTopInATerminal runs top in a terminal of 80x24, sends frames, makes the terminal
// smaller, ends the server and quits.
func TestTopInATerminal(t *testing.T) {
	p, addr := serve(t, "--model", "echo=identity", "--model", "a-model-with-a-long-name=delay,fixed=1ms")
	c := command(t, "top", "--interval", "100ms", "--addr", addr)
	c.Env = append(c.Env, "NO_COLOR=1")
	x := openTerminal(t, 80, 24, c)
	lines := x.screen("models", has("echo", "ready", "0/1"))
	fits(t, lines, 80, 24)
	if !has("a-model-w…", "ready")(lines) || !has("millrace v1.2.3", addr, "ready", "up ")(lines) ||
		!has("connections http", "sessions", "goroutines")(lines) {
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
			if f := strings.Fields(l); len(f) == 11 && f[0] == "echo" && f[4] != "0" && f[5] != "0" && f[8] != "0" &&
				f[10] == "1.0" {
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

// A terminal has colours without NO_COLOR.
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
