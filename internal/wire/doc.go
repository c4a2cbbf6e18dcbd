// Package wire encodes and decodes the messages of the WebSocket subprotocol millrace.v1: the binary header of media,
// the framing of tensors, the control messages in JSON, and the codes. Server and client use the same functions; Side
// is the sender of a message, where relevant.
//
// The package owns the format of messages and the checks that need only the message. The package works on plain
// types, does no I/O, starts no goroutine and keeps no state, and must not know sockets, sessions, streams, models or
// buffers. Package internal/oip reads and writes the Open Inference Protocol JSON in a message.
//
// Functions that parse return views into the message. All functions may be called concurrently as long as each call
// has its own destination.
package wire
