// Package records has the records that TLS makes of one message leave in one system call:
// crypto/tls writes each record by itself. Cork collects them, below TLS, for whoever knows
// where a message begins and ends; Dialer returns connections on which each Write is a
// message. The package must not know what the messages are.
package records

import "sync"

// Max is how much one record of TLS holds (RFC 8446, section 5.1), in bytes.
const Max = 16 << 10

// Cork collects what TLS writes to its connection. The zero Cork collects nothing. The
// methods are safe for concurrent use, since the reader of a connection can have TLS write as
// well. Each of them writes with the function that it is called with.
type Cork struct {
	mu  sync.Mutex
	buf []byte // what is collected, and the room for more; nil = writes go through
}

// Start has everything that is written until Stop collected in buf, and written when there is
// no room for more.
func (k *Cork) Start(buf []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.buf = buf[:0]
}

// Stop writes what is collected. The buffer is the caller's again.
func (k *Cork) Stop(write func([]byte) (int, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.flush(write)
	k.buf = nil
	return err
}

// Collect takes a write, between Start and Stop.
func (k *Cork) Collect(b []byte, write func([]byte) (int, error)) (n int, taken bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buf == nil {
		return 0, false, nil
	}
	if len(k.buf)+len(b) > cap(k.buf) {
		if err := k.flush(write); err != nil {
			return 0, true, err
		}
		if len(b) > cap(k.buf) {
			n, err = write(b)
			return n, true, err
		}
	}
	k.buf = append(k.buf, b...)
	return len(b), true, nil
}

func (k *Cork) flush(write func([]byte) (int, error)) (err error) {
	if len(k.buf) > 0 {
		_, err = write(k.buf)
		k.buf = k.buf[:0]
	}
	return err
}
