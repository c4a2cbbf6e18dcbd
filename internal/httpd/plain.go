package httpd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"millrace/stream/coded"
)

// errPlain ends a connection that does not begin with TLS.
var errPlain = errors.New("the client speaks HTTP without TLS")

// Bounds for reading after the reply of refusePlain, so that no reset loses the reply.
const (
	plainLinger = time.Second
	plainRest   = 16 << 20
)

// looksUnencrypted reports whether a connection begins with a request without TLS: records of TLS begin with no letter.
func looksUnencrypted(b []byte) bool { return len(b) > 0 && b[0] >= 'A' && b[0] <= 'Z' }

// refusePlain answers a request without TLS and ends the connection.
func refusePlain(c net.Conn) {
	body := AppendError(nil, coded.Errorf(coded.InvalidArgument, "",
		"this port speaks https: use https:// in the address in place of http://, or wss:// in place of ws://"))
	_ = c.SetDeadline(time.Now().Add(plainLinger))
	if _, err := fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: "+
		"close\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, plainRest)
}
