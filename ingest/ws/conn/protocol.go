package conn

import "io"

// Protocol decides the meaning of a connection's messages. Each connection has its own Protocol; only the reader
// goroutine calls the methods.
type Protocol interface {
	// Open is called after the upgrade, when the writer runs. An error refuses the connection.
	Open() error
	// Binary handles one binary message. An error ends the connection.
	Binary(r io.Reader) error
	// Text handles one text message, of at most MaxText bytes.
	Text(msg []byte)
	// Close is called when the connection is to end, even after a failed Open or without Open. Close calls Conn.Drain
	// or Conn.Cut, and returns when every frame has ended and no stream uses the connection.
	Close(e Ending)
}

// TextFrames is a Protocol with text messages as frames on some connections.
type TextFrames interface {
	// TakesText reports whether text messages are frames now.
	TakesText() bool
	// TextFrame handles one text message, of up to the largest size of a message. An error ends the connection.
	TextFrame(r io.Reader) error
}

// Form describes a protocol to the core.
type Form struct {
	// Error encodes an error without a frame as a text message; fatal says that the error ends the connection.
	Error func(err error, fatal bool) []byte
	// Resumable says that a client may reconnect: after a time-out of a write the network counts as lost, not the
	// client as slow.
	Resumable bool
}
