package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/gittest"
)

// Scripts run one after another in one shell: each has its own output, status and variables, any bytes are arguments,
// and what start files of the user print belongs to no script.
func TestShell(t *testing.T) {
	s := gittest.NewSSH(t)
	s.Configure(`ForceCommand echo Welcome; echo "no mail" >&2; printf 'last login'; eval "$SSH_ORIGINAL_COMMAND"`)
	at := opened(t, s, options(t, s))
	odd := "a'b\"c$d`e\\n\n\x01\x88\xff %s end-0 \n\n-n"
	for range 2 {
		if out, err := at.run(`x=$1; printf '%s.' "$x"`, odd); err != nil || out != odd+"." {
			t.Errorf("%q, %v", out, err)
		}
	}
	if out, err := at.run(`echo "${x-none}$#"; read -r line || echo "end of input"`); err != nil ||
		out != "none0\nend of input" {
		t.Errorf("%q, %v", out, err)
	}
	_, err := at.run(`echo out; echo wrong >&2; exit 7`)
	var exit *exitError
	if !errors.As(err, &exit) || exit.status != 7 || exit.said != "wrong" {
		t.Errorf("%v", err)
	}
	if out, err := at.run(`false; echo on`); err == nil || out != "" {
		t.Errorf("a script goes on after a failure: %q, %v", out, err)
	}
	out, err := at.run(`head -c 3000000 /dev/zero | tr '\0' x; echo; echo z >&2`)
	if err != nil || len(out) != maxOutput || strings.Trim(out, "x") != "" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if out, err := at.run(`ls -l /proc/self/fd | grep -c '/work' || :`); err != nil || out != "0" {
		t.Errorf("a program has the lock: %s, %v", out, err)
	}
}

// hangs is a script that writes the number of its process into a file, and does not end.
const hangs = `sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 1000' sh "$1"`

// process waits for the file of hangs, and returns 0 for a script that has ended before.
func process(t *testing.T, file string, ended chan error) int {
	t.Helper()
	for {
		over := len(ended) > 0
		if text, err := os.ReadFile(file); err == nil {
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if over {
			return 0
		}
		time.Sleep(time.Millisecond)
	}
}

// A script that hangs ends at the time limit and with the context, and its processes with it. The next script runs.
func TestShellHangs(t *testing.T) {
	s := gittest.NewSSH(t)
	at := opened(t, s, options(t, s))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("the user has ended the command")
	for i, c := range []struct {
		ctx   context.Context
		limit time.Duration
	}{{t.Context(), time.Second}, {ctx, time.Hour}} {
		file := filepath.Join(t.TempDir(), fmt.Sprint(i))
		failed := make(chan error, 1)
		pid := 0
		for limit := c.limit; pid == 0; limit *= 2 { // a busy machine may need longer to start the script
			go func() {
				_, err := at.runFor(c.ctx, limit, hangs, file)
				failed <- err
			}()
			if pid = process(t, file, failed); pid == 0 {
				<-failed
			}
		}
		if c.ctx == ctx {
			cancel(why)
		}
		err := <-failed
		if c.ctx == ctx && !errors.Is(err, why) || c.ctx != ctx && !errors.As(err, new(lateError)) {
			t.Errorf("%v", err)
		}
		// A process that has ended, and whose end nobody awaits, has no arguments.
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(text) > 0 {
			t.Errorf("the process %q has not ended", text)
		}
		if out, err := at.run("echo here"); err != nil || out != "here" {
			t.Errorf("afterwards: %q, %v", out, err)
		}
	}
}

// A deploy does not start while a command of a deploy that has died still runs.
func TestShellGuard(t *testing.T) {
	s := gittest.NewSSH(t)
	o := options(t, s)
	guardTime = time.Second
	defer func() { guardTime = 30 * time.Second }()
	first := opened(t, s, o)
	file := filepath.Join(t.TempDir(), "pid")
	failed := make(chan error, 1)
	go func() {
		_, err := first.run(hangs, file)
		failed <- err
	}()
	pid := process(t, file, failed)
	_ = first.conn.Close()
	if err := <-failed; !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
	killed := false
	for {
		second, err := open(t.Context(), target(s), &o, "bob")
		switch {
		case err == nil:
			second.close()
			if !killed {
				t.Error("a deploy starts beside a command of another")
			}
			return
		case strings.Contains(err.Error(), "a command of an earlier deploy still runs there"):
			if !killed {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			killed = true
		case !strings.Contains(err.Error(), "another deploy"): // sshd has not seen the end
			t.Fatal(err)
		}
	}
}
