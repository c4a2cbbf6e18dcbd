package httpd

import "millrace/internal/records"

// Cork has everything that is written until Uncork collected in buf, and written when there
// is no room for more.
func (c *conn) Cork(buf []byte) {
	k := c.cork.Load()
	if k == nil {
		k = new(records.Cork)
		c.cork.Store(k)
	}
	k.Start(buf)
}

// Uncork writes what is collected. The buffer is the caller's again. A connection that is
// not corked stays as it is.
func (c *conn) Uncork() error {
	if k := c.cork.Load(); k != nil {
		return k.Stop(c.writeNow)
	}
	return nil
}
