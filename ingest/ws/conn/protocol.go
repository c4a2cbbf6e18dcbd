package conn

import "io"

// Protocol is what a connection's messages mean. One is made for each connection, and the reader goroutine alone calls it.
type Protocol interface {
	// Open is called once the connection is upgraded and its writer runs. An error refuses the connection.
	Open() error
	// Binary takes one binary message. Its error is the connection's, which it ends.
	Binary(r io.Reader) error
	// Text takes one text message, of up to MaxText bytes.
	Text(msg []byte)
	// Close is called once the connection is to end, also where Open failed or was not called. It returns when every frame
	// has had its ending and no stream uses the connection any more; it calls Conn.Drain, or Conn.Cut.
	Close(e Ending)
}

// Form is what the core has to know of how a protocol speaks.
type Form struct {
	// Error codes an error that belongs to no frame, in a text message; fatal: the connection ends with it.
	Error func(err error, fatal bool) []byte
	// Resumable says that a client may come back on another connection: a write that takes too long is taken for a network
	// that is lost and not for a slow client.
	Resumable bool
}
