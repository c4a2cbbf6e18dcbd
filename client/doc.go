// Package client speaks to a running server: its health and models, one-shot
// inference over the Open Inference Protocol, and streams of frames over
// WebSocket (Stream), of which many share a session that outlives its connections
// (Session).
//
// It owns the client's side of the wire and nothing of the server: it must not
// know workers, batches or configuration. Errors that the server told are
// *stream.Error in their chain, with the server's code; a server that
// cannot be reached is stream.Unavailable.
package client
