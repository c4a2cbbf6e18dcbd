package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"millrace/internal/sshclient"
)

// Time limits of a command on a host.
const (
	commandTime = 2 * time.Minute
	unpackTime  = time.Hour // for the layers of an image
)

// guardTime is how long a deploy waits for the last command of a deploy that has died.
var guardTime = 30 * time.Second

// shell is a shell on a host that runs one script after another. A session for each script would run the start files of
// the user's shell each time, which often takes longer than the script.
type shell struct {
	session   *ssh.Session
	in        io.WriteCloser
	group     string // of the processes
	mark      string // follows the output of a script
	out, said *marked
	ended     chan error
}

// openShell starts a shell.
func (h *host) openShell() (*shell, error) {
	s, err := h.conn.NewSession()
	if err != nil {
		return nil, h.lost(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	mark := "end-" + rand.Text()
	sh := &shell{session: s, in: in, mark: mark, out: newMarked(mark), said: newMarked(mark),
		ended: make(chan error, 1)}
	s.Stdout, s.Stderr = sh.out, sh.said
	if err := s.Start("exec sh"); err != nil {
		return nil, h.lost(err)
	}
	h.running.Go(func() { sh.ended <- s.Wait() })
	err = h.begin(sh)
	if err == nil && h.work != "" {
		err = h.guard(sh)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return sh, nil
}

// begin asks a shell for its processes, and skips what the start files of the user print.
func (h *host) begin(sh *shell) error {
	text, err := h.through(sh, commandTime, "echo; echo $$")
	if err != nil {
		return err
	}
	sh.group = text[strings.LastIndexByte(text, '\n')+1:]
	if _, err := strconv.Atoi(sh.group); err != nil {
		return fmt.Errorf("%s: the shell of the user answers %q: give the user a POSIX shell", h.name,
			sshclient.Printable(text))
	}
	return nil
}

// guard makes a shell wait for the last command of a deploy that has died, and later ones wait for the commands of
// this shell, whose processes do not have the descriptor.
func (h *host) guard(sh *shell) error {
	_, err := h.through(sh, commandTime, fmt.Sprintf("exec 9>>%s && timeout %d flock 9", quote(h.work),
		int(guardTime.Seconds())))
	var exit *exitError
	if errors.As(err, &exit) && exit.said == "" {
		return fmt.Errorf("%s: a command of an earlier deploy still runs there: wait for its end, or end it "+
			"(fuser %s)", h.name, h.work)
	}
	return err
}

// kill ends the processes of a shell.
func (h *host) kill(sh *shell) {
	_ = h.stream(context.Background(), `kill -s TERM -- "-$1"
for i in 1 2 3 4 5; do
	kill -s 0 -- "-$1" || exit 0
	sleep 1
done
kill -s KILL -- "-$1"`, nil, io.Discard, sh.group)
}

// wrapped returns a script that changes nothing of the shell.
func wrapped(script string, args []string) string {
	var b strings.Builder
	b.WriteString("(\nexec 9>&-\nset -eu\nset --")
	for _, a := range args {
		b.WriteString(" " + quote(a))
	}
	return b.String() + "\n" + script + "\n)"
}

// through runs lines in a shell, and returns their output without the last line breaks. After an error that is no
// *exitError, the shell is of no use.
func (h *host) through(sh *shell, limit time.Duration, lines string) (string, error) {
	text := fmt.Sprintf("{\n%s\n} </dev/null\ns=$?\necho\necho %[2]s $s\n{ echo; echo %[2]s; } >&2\n", lines, sh.mark)
	late := time.NewTimer(limit)
	defer late.Stop()
	// A shell that runs a script does not read.
	written := make(chan error, 1)
	h.running.Go(func() {
		_, err := io.WriteString(sh.in, text)
		written <- err
	})
	var texts [2]markedText
	for i, of := range []*marked{sh.out, sh.said} {
		select {
		case texts[i] = <-of.texts:
		case err := <-sh.ended:
			sh.ended <- err
			var exit *ssh.ExitError
			if errors.As(err, &exit) {
				return "", fmt.Errorf("%s: the shell of the user has ended: %w", h.name, err)
			}
			return "", h.lost(err)
		case <-late.C:
			return "", fmt.Errorf("%s: %w", h.name, lateError{limit})
		}
	}
	select {
	case <-written:
	case <-late.C:
		return "", fmt.Errorf("%s: %w", h.name, lateError{limit})
	}
	status, err := strconv.Atoi(strings.TrimSpace(texts[0].after))
	if err != nil {
		return "", fmt.Errorf("%s: the shell of the user answers %q", h.name, texts[0].after)
	}
	if status != 0 {
		var said sshclient.Said
		_, _ = said.Write([]byte(texts[1].text))
		return "", &exitError{h.name, h.place, status, said.Text()}
	}
	return strings.TrimRight(texts[0].text, "\n"), nil
}

// lateError is a command that does not end.
type lateError struct{ limit time.Duration }

func (e lateError) Error() string {
	return fmt.Sprintf("a command does not end within %v: look there for what hangs, such as a full or broken disk, "+
		"podman or systemd, and repeat the command", e.limit)
}

// marked takes an output, and splits the output at marks, which are lines.
type marked struct {
	mark  []byte
	texts chan markedText

	mu  sync.Mutex
	buf []byte
}

// markedText is the output before a mark, and the rest of the mark's line.
type markedText struct{ text, after string }

func newMarked(mark string) *marked {
	return &marked{mark: []byte("\n" + mark), texts: make(chan markedText, 1)}
}

// Write implements io.Writer. Of an output, the first bytes are kept.
func (m *marked) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const room = 256 // for a mark and the rest of its line
	from := max(0, len(m.buf)-room)
	m.buf = append(m.buf, p...)
	i := bytes.Index(m.buf[from:], m.mark)
	if i >= 0 {
		rest := m.buf[from+i+len(m.mark):]
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			select {
			case m.texts <- markedText{string(m.buf[:min(from+i, maxOutput)]), string(rest[:end])}:
			default: // a mark that no script awaits
			}
			m.buf = append([]byte{}, rest[end+1:]...)
		}
		return len(p), nil
	}
	if n := len(m.buf); n > maxOutput+room {
		m.buf = append(m.buf[:maxOutput], m.buf[n-room:]...)
	}
	return len(p), nil
}
