//go:build unix

package sinks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait. No wait should come close.
const patience = 30 * time.Second

// running is a running socket sink.
type running struct {
	Sink
	t     *testing.T
	stop  context.CancelFunc
	once  sync.Once
	ended chan struct{}
}

func runSocket(t *testing.T, path string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Sink: (&Socket{Path: path}).Open(Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}), t: t,
		stop: cancel, ended: make(chan struct{})}
	go func() { defer close(r.ended); r.Run(ctx) }()
	t.Cleanup(func() { r.once.Do(r.Close); cancel(); <-r.ended })
	return r
}

// until waits for statistics.
func (r *running) until(what string, ok func(Stats) bool) {
	r.t.Helper()
	for limit := time.Now().Add(patience); !ok(r.Stats()); {
		if time.Now().After(limit) {
			r.t.Fatalf("not seen: %s: %+v", what, r.Stats())
		}
		<-time.After(time.Millisecond)
	}
}

// close closes the sink and waits for its end.
func (r *running) close() {
	r.t.Helper()
	r.once.Do(r.Close)
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatalf("Run did not return: %+v", r.Stats())
	}
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func seq(n int) []byte { return fmt.Appendf(nil, `{"seq":%d}`, n) }

// read reads n lines, or all lines for -1, and returns the number in each line. A line about lost lines yields their
// number, negated.
func read(t *testing.T, in *bufio.Scanner, n int) (got []int) {
	t.Helper()
	for len(got) != n && in.Scan() {
		var l struct{ Seq, Lost int }
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%v: %q", err, in.Bytes())
		}
		if l.Lost > 0 {
			l.Seq = -l.Lost
		}
		got = append(got, l.Seq)
	}
	if err := in.Err(); err != nil || n >= 0 && len(got) != n {
		t.Fatalf("%d lines, want %d: %v", len(got), n, err)
	}
	return got
}

// Results from before the start of the reader, during reading, and after a restart of the reader arrive completely
// and in order.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	s := runSocket(t, path)
	s.Write(seq(0))
	s.until("no such file", func(st Stats) bool {
		return strings.HasPrefix(st.Error, "sinks.socket: "+path) && strings.Contains(st.Error, "does not exist")
	})
	l := listen(t, path)
	c := accept(t, l)
	s.Write(seq(1))
	if got := fmt.Sprint(read(t, bufio.NewScanner(c), 2)); got != "[0 1]" {
		t.Errorf("%s", got)
	}
	s.until("connected", func(st Stats) bool { return st.Error == "" && st.Sent == 2 })
	_ = c.Close()
	_ = l.Close() // removes the file
	s.Write(seq(2))
	s.until("gone", func(st Stats) bool { return strings.Contains(st.Error, "does not exist") })
	l = listen(t, path)
	c = accept(t, l)
	s.Write(seq(3))
	s.close()
	if got := fmt.Sprint(read(t, bufio.NewScanner(c), -1)); got != "[2 3]" {
		t.Errorf("%s", got)
	}
	if st := s.Stats(); st.Sent != 4 || st.Lost != 0 || st.Retries == 0 {
		t.Errorf("%+v", st)
	}
}

// A reader that does not read loses lines and delays nothing. After reading again, the reader gets the number of lost
// lines in their place.
func TestSocketSlowReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l := listen(t, path)
	s := runSocket(t, path)
	c := accept(t, l)
	const all = 20_000
	begun := time.Now()
	pad := strings.Repeat(" ", 1000)
	for n := range all {
		s.Write(fmt.Appendf(nil, `{"seq":%d%s}`, n, pad))
	}
	if took := time.Since(begun); took > patience/3 {
		t.Errorf("writing took %v", took)
	}
	lost := s.Stats().Lost
	if lost == 0 {
		t.Fatal("a reader that takes nothing lost nothing")
	}
	in := bufio.NewScanner(c)
	next, told := 0, 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next < all+1 && in.Scan() {
			var l struct{ Seq, Lost int }
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				t.Errorf("%v: %.100q", err, in.Bytes())
				return
			}
			if l.Lost > 0 {
				told, next = told+l.Lost, next+l.Lost
				continue
			}
			if l.Seq != next {
				t.Errorf("%d came behind %d", l.Seq, next-1)
				return
			}
			next++
		}
	}()
	s.until("read", func(st Stats) bool { return st.Sent+st.Lost == all })
	s.Write(seq(all))
	s.close()
	<-done
	if st := s.Stats(); next != all+1 || told != int(st.Lost) || st.Lost != lost {
		t.Errorf("%d lines, %d told as lost, %+v", next, told, st)
	}
}

// Errors about the path are described with the next step.
func TestSocketTroubles(t *testing.T) {
	dir := t.TempDir()
	file, locked := filepath.Join(dir, "file"), filepath.Join(dir, "locked")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	listen(t, filepath.Join(locked, "x.sock"))
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) })
	for path, want := range map[string]string{
		file:                            "no program listening",
		filepath.Join(dir, "none"):      "does not exist",
		filepath.Join(locked, "x.sock"): "may not be written to",
	} {
		if strings.Contains(want, "may not") && os.Geteuid() == 0 {
			continue // root may do everything
		}
		s := runSocket(t, path)
		s.until(want, func(st Stats) bool { return strings.Contains(st.Error, want) })
		s.close()
	}
	long := (&Socket{Path: "/" + strings.Repeat("x", socketPath)}).Validate()
	if stream.CodeOf(long) != stream.InvalidArgument || !strings.HasPrefix(long.Error(), "sinks.socket: ") {
		t.Errorf("%v", long)
	}
}
