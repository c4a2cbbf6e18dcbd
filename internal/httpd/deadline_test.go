package httpd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection with its other end, peer; sets records its deadlines.
func pipe(t *testing.T) (c *conn, peer net.Conn, sets *[]time.Time) {
	inner, peer := net.Pipe()
	t.Cleanup(func() { inner.Close(); peer.Close() })
	c, sets = newConn(inner), new([]time.Time)
	for _, d := range []*deadline{&c.read, &c.write} {
		set := d.set
		d.set = func(at time.Time) error { *sets = append(*sets, at); return set(at) }
	}
	return c, peer, sets
}

// TestReadsEndAtTheirDeadline checks that the last deadline holds to the nanosecond, whether earlier or later than
// the deadlines before.
func TestReadsEndAtTheirDeadline(t *testing.T) {
	for _, c := range []struct {
		name  string
		after []time.Duration // deadlines, from the beginning; 0 = none
		want  time.Duration
	}{
		{"one", []time.Duration{10 * time.Second}, 10 * time.Second},
		{"later", []time.Duration{10 * time.Second, 2 * time.Minute}, 2 * time.Minute},
		{"earlier", []time.Duration{2 * time.Minute, 10 * time.Second}, 10 * time.Second},
		{"later and earlier", []time.Duration{10 * time.Second, 2 * time.Minute, 20 * time.Second}, 20 * time.Second},
		{"in the past", []time.Duration{10 * time.Second, -time.Second}, 0},
		{"none, then one", []time.Duration{10 * time.Second, 0, time.Hour}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _, _ := pipe(t)
				began := time.Now()
				for _, d := range c.after {
					at := began.Add(d)
					if d == 0 {
						at = time.Time{}
					}
					if err := w.SetReadDeadline(at); err != nil {
						t.Fatal(err)
					}
				}
				_, err := w.Read(make([]byte, 1))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.want {
					t.Errorf("%v after %v, want it after %v", err, took, c.want)
				}
			})
		})
	}
}

// TestNoDeadlineIsLeft checks that a read without a deadline outlasts earlier deadlines.
func TestNoDeadlineIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer, _ := pipe(t)
		_ = w.SetDeadline(time.Now().Add(time.Second))
		_ = w.SetDeadline(time.Time{})
		go func() { time.Sleep(time.Hour); _, _ = peer.Write([]byte("x")) }()
		if n, err := w.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		_ = w.SetDeadline(time.Now().Add(time.Second))
		inner := unwrap(w)
		go func() { time.Sleep(time.Hour); _, _ = peer.Write([]byte("x")) }()
		if n, err := inner.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("an owner of the inner connection got %d, %v", n, err)
		}
	})
}

// TestDeadlineWhileReading checks that a deadline ends a read in progress.
func TestDeadlineWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := pipe(t)
		_ = w.SetReadDeadline(time.Now().Add(time.Minute))
		began := time.Now()
		go func() { time.Sleep(time.Second); _ = w.SetReadDeadline(time.Now().Add(time.Second)) }()
		if _, err := w.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestWritesContinue checks that a write interrupted by the timer before its deadline continues with the rest, and
// ends at the deadline.
func TestWritesContinue(t *testing.T) {
	for _, joined := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, peer, _ := pipe(t)
			began := time.Now()
			_ = w.SetWriteDeadline(began.Add(time.Second))
			_ = w.SetWriteDeadline(began.Add(time.Minute))
			var got []byte
			go func() {
				for _, n := range []int{3000, 6000} { // the second write comes after the timer
					b := make([]byte, n)
					_, _ = io.ReadFull(peer, b)
					got = append(got, b...)
					time.Sleep(30 * time.Second)
				}
			}()
			data := make([]byte, 20000)
			for i := range data {
				data[i] = byte(i * 7)
			}
			n, first := 0, 0
			var err error
			if joined {
				w.joinWrites()
				if first, err = w.Write(data[:4096]); first != 4096 || err != nil {
					t.Fatal(first, err)
				}
			}
			n, err = w.Write(data[first:])
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute || n != 9000-first {
				t.Errorf("%d bytes, %v after %v", n, err, time.Since(began))
			}
			synctest.Wait()
			if !bytes.Equal(got, data[:9000]) {
				t.Error("other bytes arrived")
			}
		})
	}
}

// TestTimersAreRarelySet counts the timers for the deadlines of requests, on a busy connection and on an idle
// connection afterwards.
func TestTimersAreRarelySet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, peer, sets := pipe(t)
		go func() { _, _ = io.Copy(peer, peer) }()
		const requests = 1000
		one := make([]byte, 1)
		for range requests {
			_ = w.SetReadDeadline(time.Now().Add(2 * time.Minute))
			_ = w.SetReadDeadline(time.Now().Add(10 * time.Second))
			_ = w.SetWriteDeadline(time.Now().Add(time.Minute))
			time.Sleep(10 * time.Millisecond)
			if _, err := w.Write(one); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Read(one); err != nil {
				t.Fatal(err)
			}
		}
		if len(*sets) > 10 {
			t.Errorf("%d timers were set for %d requests in 10 s: %v", len(*sets), requests, *sets)
		}
	})
}

// writes notes the writes of a connection.
type writes struct {
	net.Conn
	all [][]byte
}

func (c *writes) Write(b []byte) (int, error) {
	c.all = append(c.all, bytes.Clone(b))
	return len(b), nil
}

// TestJoinedWrites checks that only the first write after joinWrites waits for the next write, and only if no larger
// than the buffer.
func TestJoinedWrites(t *testing.T) {
	inner := &writes{}
	w := &conn{Conn: inner}
	small, large := bytes.Repeat([]byte("s"), replyBuffer), bytes.Repeat([]byte("l"), replyBuffer+1)
	write := func(b []byte) {
		if n, err := w.Write(b); n != len(b) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	w.joinWrites()
	write(small)
	if len(inner.all) != 0 {
		t.Error("the first write did not wait")
	}
	write(large)
	write(small)
	w.joinWrites()
	write(large)
	write(small)
	want := [][]byte{small, large, small, large, small}
	if !slices.EqualFunc(inner.all, want, bytes.Equal) {
		t.Errorf("%d writes, want %d", len(inner.all), len(want))
	}
}
