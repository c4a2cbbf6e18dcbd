package httpd

import "millrace/internal/records"

// Cork collects all writes until Uncork in buf, and writes them early only when buf is full.
func (c *conn) Cork(buf []byte) {
	k := c.cork.Load()
	if k == nil {
		k = new(records.Cork)
		c.cork.Store(k)
	}
	k.Start(buf)
}

// Uncork writes the collected bytes and returns the buffer to the caller. Without Cork, Uncork does nothing.
func (c *conn) Uncork() error {
	if k := c.cork.Load(); k != nil {
		return k.Stop(c.writeNow)
	}
	return nil
}
