//go:build unix

package sinks

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// timed is a socket sink in fake time, with a reader in memory.
type timed struct {
	*socket
	stop  context.CancelFunc
	ended chan struct{}

	up    atomic.Bool // somebody listens
	conns chan net.Conn
	told  []string // the log's messages

	mu    sync.Mutex
	dials []time.Time // the attempts to connect
}

// newTimed makes a sink and queues the lines of write before any reader takes lines.
func newTimed(t *testing.T, up bool, write func(Sink)) *timed {
	ctx, cancel := context.WithCancel(t.Context())
	r := &timed{stop: cancel, ended: make(chan struct{}), conns: make(chan net.Conn, 8)}
	r.up.Store(up)
	r.socket = (&Socket{Path: "/x.sock"}).Open(Env{Stream: "door",
		Log: slog.New(messages{slog.DiscardHandler, &r.told})}).(*socket)
	r.dial = func(ctx context.Context) (net.Conn, error) {
		r.mu.Lock()
		r.dials = append(r.dials, time.Now())
		r.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !r.up.Load():
			return nil, syscall.ECONNREFUSED
		}
		near, far := net.Pipe()
		r.conns <- near
		return far, nil
	}
	write(r)
	go func() { defer close(r.ended); r.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(cancel)
	return r
}

// attempts returns the times of the attempts to connect since the previous call.
func (r *timed) attempts() []time.Time {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.dials
	r.dials = nil
	return all
}

// messages notes the messages of a log.
type messages struct {
	slog.Handler
	all *[]string
}

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	*m.all = append(*m.all, r.Message)
	return nil
}

func lines(n int) func(Sink) {
	return func(s Sink) {
		for i := range n {
			s.Write(seq(i))
		}
	}
}

// While nobody listens, the sink retries with waits that double up to a limit and restart after a line was taken. The
// sink logs the trouble once. The sink connects to a restarted reader at once.
func TestSocketTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, false, lines(2))
		time.Sleep(30 * time.Second)
		check := func(dials []time.Time) {
			t.Helper()
			most := 200 * time.Millisecond
			for i := 1; i < len(dials); i++ {
				if wait := dials[i].Sub(dials[i-1]); wait < most/2 || wait > most {
					t.Errorf("wait %d is %v, want %v to %v", i, wait, most/2, most)
				}
				most = min(2*most, 5*time.Second)
			}
		}
		dials := r.attempts()[1:] // the first is before the first line
		check(dials)
		if n := len(dials); n < 10 || r.Stats().Retries != uint64(n-1) {
			t.Errorf("%d attempts, %+v", n, r.Stats())
		}
		r.up.Store(true)
		c := <-r.conns
		in := bufio.NewScanner(c)
		read(t, in, 2)
		synctest.Wait()
		if len(r.told) != 2 || r.Stats().Error != "" {
			t.Errorf("%q, %+v", r.told, r.Stats())
		}
		_ = c.Close()
		begin := time.Now()
		r.Write(seq(2))
		c = <-r.conns
		if got := fmt.Sprint(read(t, bufio.NewScanner(c), 1)); got != "[2]" || time.Now() != begin {
			t.Errorf("%s after %v", got, time.Since(begin))
		}
		_ = c.Close()
		r.attempts()
		r.up.Store(false)
		r.Write(seq(3))
		time.Sleep(time.Second)
		check(r.attempts())
		r.Close()
		<-r.ended
		if st := r.Stats(); st.Sent != 3 || st.Lost != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// While the stream runs, the sink waits for a reader that takes nothing. After the close of the sink, the wait is
// limited for each line.
func TestSocketWaitsForItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, true, lines(8))
		c := <-r.conns
		in := bufio.NewScanner(c)
		time.Sleep(time.Hour)
		if got := fmt.Sprint(read(t, in, 1)); got != "[0]" || r.Stats().Retries != 0 {
			t.Errorf("%s, %+v", got, r.Stats())
		}
		r.Close()
		for range 4 {
			time.Sleep(endGrace * 3 / 4)
			read(t, in, 1)
			synctest.Wait()
		}
		begin := time.Now()
		<-r.ended
		if st := r.Stats(); time.Since(begin) != endGrace || st.Sent != 5 || st.Lost != 3 || st.Error == "" {
			t.Errorf("%v after the last line that was taken: %+v", time.Since(begin), st)
		}
	})
}

// A sink ends in time, even if the reader takes nothing or nobody listens, and counts undelivered lines. After the
// end of the server, the sink delivers nothing more.
func TestSocketEnds(t *testing.T) {
	if endGrace != 2*time.Second {
		t.Errorf("%v", endGrace)
	}
	for _, c := range []struct {
		up, stopped bool
		after       time.Duration
	}{
		{false, false, 0}, {false, true, 0}, {true, false, endGrace}, {true, true, endGrace},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newTimed(t, c.up, lines(500))
			if c.stopped {
				r.stop()
			}
			begin := time.Now()
			r.Close()
			<-r.ended
			st := r.Stats()
			if took := time.Since(begin); took != c.after || st.Lost != 500 || st.Sent != 0 || st.Error == "" {
				t.Errorf("listened %v, stopped %v: %+v after %v", c.up, c.stopped, st, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, true, lines(0))
		r.stop()
		time.Sleep(endGrace)
		r.Write(seq(0))
		time.Sleep(time.Minute)
		if n := len(r.attempts()); n > 30 {
			t.Errorf("%d attempts in a minute", n)
		}
		r.Close()
		<-r.ended
		if st := r.Stats(); st.Lost != 1 || st.Sent != 0 {
			t.Errorf("%+v", st)
		}
	})
	synctest.Test(t, func(t *testing.T) { // with nothing to say
		r := newTimed(t, false, lines(0))
		r.Close()
		<-r.ended
		if n := len(r.attempts()); n != 1 {
			t.Errorf("%d attempts to connect for no line", n)
		}
	})
}

// The loss of the last lines is reported after the delivered lines.
func TestSocketTellsOfTheLastLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, true, lines(socketQueue+2))
		r.Close()
		got := read(t, bufio.NewScanner(<-r.conns), -1)
		<-r.ended
		if n := len(got); n != socketQueue+1 || got[n-1] != -2 || r.Stats().Lost != 2 {
			t.Errorf("%d lines, the last %d, %+v", n, got[n-1], r.Stats())
		}
	})
}
