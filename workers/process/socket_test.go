package process

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// A message that does not wait is written whole or not at all.
func TestWriteWithoutWaiting(t *testing.T) {
	s, theirs, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.file.Close() }()
	const size = 1000
	var want []byte
	for i := 0; ; i++ {
		m := slices.Repeat([]byte{byte(i)}, size)
		if err = s.write([][]byte{m[:8], m[8:]}, -1, 0); err != nil {
			break
		}
		want = append(want, m...)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errHalf) || len(want) == 0 {
		t.Fatalf("after %d bytes: %v", len(want), err)
	}
	if err = s.write([][]byte{make([]byte, size)}, -1, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, errHalf) {
		t.Errorf("with a limit: %v", err)
	}
	_ = s.file.Close()
	got, err := io.ReadAll(theirs)
	_ = theirs.Close()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d bytes were read, and %d written whole; %v", len(got), len(want), err)
	}
}

// A child that does not read a message, or only a part, is given up, because the child could not understand later
// messages.
func TestUnreadMessages(t *testing.T) {
	many := slices.Repeat([]uint64{math.MaxUint64}, 1<<18)
	const some = -1
	for _, c := range []struct {
		name    string
		full    bool // the socket has no room at all
		send    func(w *Worker)
		given   bool // up
		release int  // states to release
	}{
		{"segment", true, func(w *Worker) { _ = w.sendSegment(1, 10, false, -1) }, true, 0},
		{"drop_segment", true, func(w *Worker) { w.drop(1) }, true, 0},
		{"cancel", true, func(w *Worker) { w.tryPost([]byte(`{"type":"cancel"}`)) }, false, 0},
		{"release before a batch", true, func(w *Worker) {
			w.proc.release = []uint64{1, 2}
			w.releaseStates(w.patience())
		}, true, 2},
		{"release", true, func(w *Worker) { w.proc.release = []uint64{1, 2}; w.releaseStates(0) }, false, 2},
		{"many releases before a batch", false, func(w *Worker) {
			w.proc.release = many
			w.releaseStates(w.patience())
		}, true, some},
		{"many releases", false, func(w *Worker) { w.proc.release = many; w.releaseStates(0) }, false, some},
		{"many releases without room", true, func(w *Worker) {
			w.proc.release = many
			w.releaseStates(0)
		}, false, len(many)},
		{"half a segment", false, func(w *Worker) { w.post(make([]byte, 8<<20), -1) }, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := &workers.Env{Name: "m", Memory: buf.NewPool(0), Limit: 50 * time.Millisecond,
				Processes: &workers.Processes{}}
			spec := Spec{Path: "sleep", Args: []string{"1000"}, Settings: defaults()}
			p, err := begin(&spec, env, newLogs(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer p.kill(0, nil)
			w := &Worker{env: env, spec: spec, proc: p}
			for c.full && p.send([]byte(`{"type":"cancel"}`), nil, -1, 0) == nil {
			}
			c.send(w)
			p.mu.Lock()
			why, left := p.why, len(p.release)
			p.mu.Unlock()
			switch {
			case !c.given && why != nil:
				t.Errorf("it was given up: %v", why)
			case c.given && (stream.CodeOf(why) != stream.Timeout ||
				!strings.Contains(why.Error(),
					"limits.run: the program of model m did not read a message within 50ms")):
				t.Errorf("it was not given up: %v", why)
			}
			if left != c.release && (c.release != some || left == 0 || left == len(many)) {
				t.Errorf("%d states are left to release, want %d", left, c.release)
			}
		})
	}
}

// The error of a child that does not read names the waited time, and names a setting only if the time comes from the
// setting.
func TestLimitOfAMessage(t *testing.T) {
	for _, c := range []struct {
		set   time.Duration
		limit time.Duration
		want  string
	}{
		{3 * time.Second, 3 * time.Second, "limits.run: the program of model m did not read within 3s and is replaced"},
		{3 * time.Second, writeLimit, "the program of model m did not read within 10s and is replaced"},
		{0, writeLimit, "the program of model m did not read within 10s and is replaced"},
	} {
		w := &Worker{env: &workers.Env{Name: "m", Limit: c.set}}
		if got := w.tooLong("did not read", c.limit).Error(); got != c.want {
			t.Errorf("%v of %v: %s", c.limit, c.set, got)
		}
	}
}
