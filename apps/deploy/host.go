package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"millrace/internal/sshclient"
)

// Times of a connection.
const (
	connectTime = 30 * time.Second
	pulse       = 5 * time.Second  // between signs of life, which keep the lock of the host
	silence     = 20 * time.Second // after which the other side is gone
	maxOutput   = 1 << 20          // bytes of a command's output
)

// host is a connection to a host. Its methods may be called by several goroutines.
type host struct {
	name string // as the user wrote it, for messages
	conn *ssh.Client

	one   sync.Mutex // of the shell
	shell *shell     // nil before the first command
	work  string     // file that a command locks, see guard; "" = none
	place string     // folder of the application, for messages

	stop    chan struct{}
	end     context.CancelCauseFunc
	once    sync.Once
	running sync.WaitGroup
}

// errLost means that the connection to a host has ended.
var errLost = errors.New("the connection was lost: repeat the command, which finishes or undoes what is half done")

// connect opens a connection, which lives until close.
func connect(ctx context.Context, t Target, o sshclient.Options) (*host, error) {
	// The connection outlives ctx, to undo what is half done.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	late := time.AfterFunc(connectTime, func() { end(fmt.Errorf("no answer within %v", connectTime)) })
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	conn, err := sshclient.Dial(life, (&net.Dialer{}).DialContext, t.User, t.address(), o)
	late.Stop()
	stop()
	if err == nil {
		if err = context.Cause(life); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		end(nil)
		return nil, fmt.Errorf("%s: %w", t, explainDial(err))
	}
	h := &host{name: t.String(), conn: conn, stop: make(chan struct{}), end: end}
	h.running.Go(h.watch)
	return h, nil
}

func explainDial(err error) error {
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return fmt.Errorf("the host %s has no address: compare the name (%s)", lookup.Name, lookup.Err)
	}
	if errors.Is(err, sshclient.ErrNoServer) {
		return fmt.Errorf("%w: compare --target", err)
	}
	return err
}

// watch closes the connection when the host is silent.
func (h *host) watch() {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
		late := time.AfterFunc(silence, func() { _ = h.conn.Close() })
		_, _, err := h.conn.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil {
			return
		}
	}
}

func (h *host) close() {
	h.once.Do(func() {
		close(h.stop)
		_ = h.conn.Close()
		h.end(nil)
	})
	h.running.Wait()
}

// exitError is a command that failed on a host.
type exitError struct {
	host   string
	place  string // folder of the application
	status int
	said   string // on standard error
}

func (e *exitError) Error() string {
	text := e.said
	if text == "" {
		text = fmt.Sprintf("a command failed with status %d", e.status)
	}
	if strings.Contains(text, "No space left on device") || strings.Contains(text, "Disk quota exceeded") {
		text += ": make room there, or give another folder than " + e.place + " by --target-folder"
	}
	return e.host + ": " + text
}

// run runs a script of sh on the host, and returns its output. Arguments are $1 and so on: the script has no text of
// users. A script that ends with another status than 0 is an *exitError. Scripts and arguments go through the input of
// the shell, so that other users of the host do not see secrets.
func (h *host) run(script string, args ...string) (string, error) {
	return h.runFor(context.Background(), commandTime, script, args...)
}

// runFor is run with a time limit. The end of ctx, and the limit, end the processes of the script.
func (h *host) runFor(ctx context.Context, limit time.Duration, script string, args ...string) (text string,
	err error) {
	h.one.Lock()
	defer h.one.Unlock()
	if h.shell == nil {
		if h.shell, err = h.openShell(); err != nil {
			h.shell = nil
			return "", err
		}
	}
	sh := h.shell
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		h.kill(sh)
	})
	text, err = h.through(sh, limit, wrapped(script, args))
	if !stop() {
		<-stopped
		err = context.Cause(ctx)
	}
	var exit *exitError
	if err != nil && !errors.As(err, &exit) {
		if errors.As(err, new(lateError)) {
			h.kill(sh)
		}
		_ = sh.session.Close()
		h.shell = nil
	}
	return text, err
}

// openInput is the input of a script that ends with the session.
var openInput = io.Reader(new(bytes.Reader))

// stream runs a script in a session of its own, with an input, and with the output as it comes. The end of ctx ends the
// session. Other users of the host see the script and the arguments.
func (h *host) stream(ctx context.Context, script string, in io.Reader, out io.Writer, args ...string) error {
	s, err := h.conn.NewSession()
	if err != nil {
		return h.lost(err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	var said sshclient.Said
	s.Stdout, s.Stderr = out, &said
	if in == openInput {
		pipe, err := s.StdinPipe()
		if err != nil {
			return err
		}
		defer pipe.Close()
	} else {
		s.Stdin = in
	}
	return h.explain(s.Run(command(script, args)), &said)
}

// streamed is stream with the whole output.
func (h *host) streamed(ctx context.Context, script string, in io.Reader, args ...string) (string, error) {
	var out bytes.Buffer
	err := h.stream(ctx, script, in, &bounded{w: &out, left: maxOutput}, args...)
	return strings.TrimRight(out.String(), "\n"), err
}

func (h *host) explain(err error, said *sshclient.Said) error {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Signal() == "":
		return &exitError{h.name, h.place, exit.ExitStatus(), said.Text()}
	case errors.As(err, &exit):
		return fmt.Errorf("%s: a command was ended by the signal %s", h.name, exit.Signal())
	}
	return h.lost(err)
}

func (h *host) lost(err error) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return fmt.Errorf("%s: sshd there allows no further session: set MaxSessions to 4 or more in sshd_config (%w)",
			h.name, err)
	}
	return fmt.Errorf("%s: %w (%w)", h.name, errLost, err)
}

// command returns a command line for the shell of the host's user.
func command(script string, args []string) string {
	line := "exec sh -c " + quote("set -eu\n"+script) + " sh"
	for _, a := range args {
		line += " " + quote(a)
	}
	return line
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// bounded drops what is more than left bytes.
type bounded struct {
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	if _, err := b.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// lockScript holds the lock of a folder as long as lines come: a host that lost the connection frees the lock by
// itself.
const lockScript = `umask 077
mkdir -p "$1"
if [ ! -O "$1" ] || [ -n "$(find "$1/." -prune \( -perm -020 -o -perm -002 \))" ]; then
	echo "other users can write in the folder $1: give another folder by --target-folder" >&2
	exit 1
fi
exec 9>>"$1/lock"
flock -n 9 || { echo; cat "$1/owner"; exit 75; }
{ printf '%s\n' "$2" | cat >"$1/owner"; } 2>/dev/null || : # the disk may be full
echo
echo locked
while [ -n "$(timeout "$3" head -n 1)" ]; do :; done
`

// lock locks the folder on the host until release is called.
func (h *host) lock(folder, owner string) (release func(), err error) {
	s, err := h.conn.NewSession()
	if err != nil {
		return nil, h.lost(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	var said sshclient.Said
	out := &lines{await: "locked", seen: make(chan struct{})}
	s.Stdout, s.Stderr = out, &said
	if err := s.Start(command(lockScript, []string{folder, owner, fmt.Sprint(int(silence.Seconds()))})); err != nil {
		return nil, h.lost(err)
	}
	ended := make(chan error, 1)
	h.running.Go(func() { ended <- s.Wait() })
	select {
	case <-out.seen:
	case <-time.After(commandTime):
		_ = s.Close()
		return nil, fmt.Errorf("%s: %w", h.name, lateError{commandTime})
	case err := <-ended:
		_ = s.Close()
		var exit *ssh.ExitError
		if errors.As(err, &exit) && exit.ExitStatus() == 75 {
			return nil, busy(h.name, out.last)
		}
		return nil, h.explain(err, &said)
	}
	done := make(chan struct{})
	h.running.Go(func() {
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := in.Write([]byte("here\n")); err != nil {
					return
				}
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		_ = in.Close()
		select { // so that the next command finds no lock
		case <-ended:
		case <-time.After(silence):
		}
		_ = s.Close()
	}), nil
}

func busy(host, owner string) error {
	return fmt.Errorf("%s: another deploy of the application runs there, by %s: wait for its end. The lock of a "+
		"deploy that has died ends by itself within %v", host, strings.TrimSpace(owner), silence)
}

// lines waits for a line of an output. The start files of the user may have printed others before.
type lines struct {
	await string
	seen  chan struct{} // closed after the line
	last  string        // the last line, for the time after the output

	buf  []byte
	done bool
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	for {
		line, rest, found := bytes.Cut(l.buf, []byte("\n"))
		if !found {
			break
		}
		l.buf, l.last = rest, sshclient.Printable(string(line[:min(len(line), 1000)]))
		if l.last == l.await && !l.done {
			l.done = true
			close(l.seen)
		}
	}
	if len(l.buf) > 1000 {
		l.buf = l.buf[:0]
	}
	return len(p), nil
}

// only makes the commands of this connection wait for those of an earlier connection, see guard.
func (h *host) only(work string) error {
	h.one.Lock()
	defer h.one.Unlock()
	h.work = work
	if h.shell == nil {
		return nil // the next command opens the shell
	}
	return h.guard(h.shell)
}
