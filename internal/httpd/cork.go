package httpd

import "sync"

// cork collects what TLS writes to its connection, which costs a system call for each record
// of at most 16 KiB otherwise. The methods are safe for concurrent use, since the reader of a
// connection can have TLS write as well.
type cork struct {
	mu  sync.Mutex
	buf []byte // what is collected, and the room for more; nil = writes go through
}

// Cork has everything that is written until Uncork collected in buf, and written when there
// is no room for more.
func (c *conn) Cork(buf []byte) {
	k := c.cork.Load()
	if k == nil {
		k = new(cork)
		c.cork.Store(k)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.buf = buf[:0]
}

// Uncork writes what is collected. The buffer is the caller's again. A connection that is
// not corked stays as it is.
func (c *conn) Uncork() error {
	k := c.cork.Load()
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.flush(c)
	k.buf = nil
	return err
}

// collect takes a write if the connection is corked.
func (k *cork) collect(c *conn, b []byte) (n int, corked bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buf == nil {
		return 0, false, nil
	}
	if len(k.buf)+len(b) > cap(k.buf) {
		if err := k.flush(c); err != nil {
			return 0, true, err
		}
		if len(b) > cap(k.buf) {
			n, err = c.writeNow(b)
			return n, true, err
		}
	}
	k.buf = append(k.buf, b...)
	return len(b), true, nil
}

func (k *cork) flush(c *conn) (err error) {
	if len(k.buf) > 0 {
		_, err = c.writeNow(k.buf)
		k.buf = k.buf[:0]
	}
	return err
}
