// Package client speaks to a running server: its health and models, one-shot
// inference over the Open Inference Protocol, and streams of frames over
// WebSocket: one to a connection (Stream), or many in a session that outlives
// its connections (Session, Channel).
//
// It owns the client's side of the wire and nothing of the server: it must not
// know workers, batches or configuration. Errors that the server told are
// *stream.Error with the server's code, as stream.CodeOf reads it; a server that
// cannot be reached is stream.Unavailable.
package client
