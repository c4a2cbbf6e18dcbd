// Package wire codes the WebSocket subprotocol millrace.v1: the binary header
// before media, the framing of tensors behind it, the control messages in JSON,
// and the numbers and words that both ends share. Server and client use the
// same functions; where it matters who wrote a message, they are told (Side).
//
// It owns the layout of messages and the checks that need nothing but the
// message. It works on plain types, does no I/O, starts no goroutine and keeps
// no state, and must not know of sockets, sessions, streams, models or buffers.
// The Open Inference Protocol JSON in a message is internal/oip's.
//
// Functions that parse return views into the message they were given, which
// live as long as it does. All functions may be called concurrently as long as
// each call has its own destination.
package wire
