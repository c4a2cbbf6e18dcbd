package conn

import "io"

// Protocol decides what a connection's messages mean. Each connection has its own, and
// only the reader goroutine calls it.
type Protocol interface {
	// Open is called when the connection is upgraded and its writer runs. An error
	// refuses the connection.
	Open() error
	// Binary handles one binary message. Its error ends the connection.
	Binary(r io.Reader) error
	// Text handles one text message, of up to MaxText bytes.
	Text(msg []byte)
	// Close is called when the connection is to end, also when Open failed or was not
	// called. It returns when every frame has ended and no stream uses the connection
	// any more; it calls Conn.Drain or Conn.Cut.
	Close(e Ending)
}

// TextFrames is a Protocol some of whose connections take text messages as frames.
type TextFrames interface {
	// TakesText reports whether text messages are frames now.
	TakesText() bool
	// TextFrame handles one text message, of up to the largest size of a message. Its error ends the connection.
	TextFrame(r io.Reader) error
}

// Form is what the core has to know of a protocol.
type Form struct {
	// Error encodes an error that belongs to no frame as a text message; fatal says
	// that the connection ends with it.
	Error func(err error, fatal bool) []byte
	// Resumable says that a client may reconnect: a write that takes too long is then
	// treated as a lost network and not as a slow client.
	Resumable bool
}
