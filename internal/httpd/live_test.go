package httpd

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A live reply whose client does not read ends with the event that has waited for 10 s, however often the reply is
// written to afterwards. A client that takes an event in time is sent the next event.
func TestUnreadEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := net.Pipe() // a write waits for its reader
		defer conn.Close()
		defer client.Close()
		l := &Live{conn: conn, chunks: true, ctx: t.Context()}
		go func() {
			time.Sleep(9 * time.Second)
			_, _ = client.Read(make([]byte, 1<<10))
		}()
		began := time.Now()
		if err := l.Event("", []byte("read")); err != nil || time.Since(began) != 9*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		for range 3 {
			if err := l.Event("error", []byte("the reason")); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		}
		l.end()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("after %v", took)
		}
	})
}
