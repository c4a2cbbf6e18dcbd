// Package client is the Go client of a running server: health and models, one-shot inference over the Open Inference
// Protocol, and streams of frames over WebSocket (Stream). A session (Session) has any number of streams over one
// connection, and survives the loss of the connection. NewWith takes an API key of the server.
//
// Package client owns the client's side of the protocols, and must not know workers, batches or configuration. Errors
// of the server wrap a *stream.Error with the server's code; an unreachable server is stream.Unavailable.
package client
