package httpd

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// drips is a connection whose client sends one byte per interval.
type drips struct {
	net.Conn
	every time.Duration
	began time.Time
	read  int // bytes
	reads int
}

func (d *drips) Read(b []byte) (int, error) {
	d.reads++
	time.Sleep(time.Until(d.began.Add(time.Duration(d.read+1) * d.every))) // until the next byte is due
	n := min(int(time.Since(d.began)/d.every)-d.read, len(b))
	d.read += n
	return n, nil
}

func (d *drips) Write(b []byte) (int, error)      { return len(b), nil }
func (d *drips) SetReadDeadline(time.Time) error  { return nil }
func (d *drips) SetWriteDeadline(time.Time) error { return nil }

// readFor reads from a connection for a time, and returns the number of reads of the inner connection.
func readFor(c *conn, d *drips, how time.Duration) int {
	before := d.reads
	b := make([]byte, readBufferSize)
	for until := time.Now().Add(how); time.Now().Before(until); {
		_, _ = c.Read(b)
	}
	return d.reads - before
}

// A request sent in many small parts is read in few reads, whatever the intervals, and completely. Bytes after a
// reply, larger parts, and connections taken over are read at once.
func TestRequestsInSmallParts(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			d := &drips{every: every, began: time.Now()}
			c := newConn(d)
			if n := readFor(c, d, time.Minute); n > withoutWait+10+int(time.Minute/min(longestWait, smallRead*every)) {
				t.Errorf("a byte every %v: %d reads in a minute", every, n)
			}
			if most := int(time.Since(d.began) / every); d.read < most-int(longestWait/every)-1 {
				t.Errorf("a byte every %v: %d bytes of %d were read", every, d.read, most)
			}
			if _, err := c.Write(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, smallRead)); err != nil {
				t.Fatal(err)
			}
			if n := readFor(c, d, withoutWait*every); n < withoutWait-2 {
				t.Errorf("a byte every %v: %d reads in the time of %d bytes after a reply", every, n, withoutWait)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := &drips{every: time.Millisecond / smallRead, began: time.Now()}
		c := newConn(d)
		b := make([]byte, smallRead)
		for d.read < 1<<20 {
			time.Sleep(time.Millisecond)
			if n, _ := c.Read(b); n != len(b) {
				t.Fatalf("%d bytes", n)
			}
		}
		if took := time.Since(d.began); took > 1<<20/smallRead*time.Millisecond*11/10 {
			t.Errorf("parts of %d bytes: %v", smallRead, took)
		}
		if _, err := c.Write(bytes.Repeat([]byte{1}, 10)); err != nil {
			t.Fatal(err)
		}
	})
}
