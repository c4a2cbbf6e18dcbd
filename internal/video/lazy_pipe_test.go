package video

import (
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A lazy pipe is read at whole moments, soon after many bytes, and without waiting in a hurry.
func TestLazyPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out, err := newLazyPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		p.size = 64
		b := make([]byte, 100)
		// read reads n bytes that are written after the first wait, and returns the time that the read took.
		read := func(n int) time.Duration {
			t.Helper()
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				time.Sleep(time.Microsecond)
				if _, err := out.Write(make([]byte, n)); err != nil {
					t.Error(err)
				}
			}()
			from := time.Now()
			if got, err := p.Read(b); got != n || err != nil {
				t.Fatal(got, err)
			}
			<-wrote
			return time.Since(from)
		}
		time.Sleep(30 * time.Millisecond)
		for i, want := range []struct {
			bytes int
			took  time.Duration
		}{{16, 70 * time.Millisecond}, {17, 100 * time.Millisecond}, {1, 5 * time.Millisecond}} {
			if took := read(want.bytes); took != want.took {
				t.Errorf("read %d took %v, want %v", i, took, want.took)
			}
		}
		// Another process has the write end: the read ends at the time of hurry.
		from := time.Now()
		time.AfterFunc(time.Millisecond, func() { p.hurry(from.Add(50 * time.Millisecond)) })
		if _, err := p.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(from) != 50*time.Millisecond {
			t.Error(err, time.Since(from))
		}
		_ = out.Close()
		if _, err := p.Read(b); err != io.EOF {
			t.Error(err)
		}
	})
}
