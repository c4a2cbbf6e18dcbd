package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/ctxio"
)

// program is a run of the server.
type program struct {
	cmd        *exec.Cmd
	http, grpc string // addresses
	log        *logFile
	stderr     *tail
	done       chan error
}

var addresses = regexp.MustCompile(`http://(\S+) grpc://(\S+)`)

// startTime bounds how long the server may need to start.
const startTime = time.Minute

// serve starts the server with the configuration in the folder of the site.
func serve(binary string, s *site) (*program, error) {
	p := &program{cmd: exec.Command(binary, "serve", "--config", s.path("millrace.yaml")),
		log: &logFile{path: s.path("log")}, stderr: &tail{}, done: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Stderr = s.dir, p.stderr
	p.cmd.Env = append(os.Environ(), "TMPDIR="+s.path("tmp"))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() { // ends with the program
		in := bufio.NewReader(out)
		line, _ := in.ReadString('\n')
		ready <- line
		_, _ = io.Copy(io.Discard, in)
		p.done <- p.cmd.Wait()
	}()
	select {
	case line := <-ready:
		if m := addresses.FindStringSubmatch(line); m != nil {
			p.http, p.grpc = m[1], m[2]
			return p, nil
		}
	case <-time.After(startTime):
	}
	_ = p.cmd.Process.Kill()
	return nil, fmt.Errorf("the server did not start: %s", p.stderr)
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// stopTime bounds the server's time to end, and exceeds the server's setting drain.
const stopTime = 30 * time.Second

// stop ends the server by SIGTERM.
func (p *program) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("the server ended with %w: %s", err, p.stderr)
		}
		return nil
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("the server did not end within 30 s after SIGTERM")
	}
}

// tail keeps the last written bytes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, b...); len(t.text) > 2*tailBytes {
		t.text = append(t.text[:0], t.text[len(t.text)-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// logFile counts lines in the log of the server.
type logFile struct {
	path string
	from int64 // start of the unread part
}

// wait returns the first new line of the log that contains any of the texts.
func (l *logFile) wait(ctx context.Context, d time.Duration, texts ...string) (string, error) {
	for limit := time.Now().Add(d); ; ctxio.Sleep(ctx, 50*time.Millisecond) {
		line, err := l.find(texts)
		if err != nil || line != "" {
			return line, err
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return "", fmt.Errorf("within %v the log has none of %q", d, texts)
		}
	}
}

// find returns the first new line with any of the texts; "" = none yet.
func (l *logFile) find(texts []string) (string, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Seek(l.from, io.SeekStart); err != nil {
		return "", err
	}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return "", nil // an incomplete line is read again
		}
		if err != nil {
			return "", err
		}
		l.from += int64(len(line))
		for _, text := range texts {
			if strings.Contains(line, text) {
				return line, nil
			}
		}
	}
}

// skip skips the present contents of the log.
func (l *logFile) skip() {
	if info, err := os.Stat(l.path); err == nil {
		l.from = info.Size()
	}
}
