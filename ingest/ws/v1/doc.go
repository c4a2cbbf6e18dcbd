// Package v1 is the subprotocol millrace.v1 over WebSocket: any number of streams in one session; the session
// survives the loss of its connection. A session owns its channels (one per stream), its outbox, and the endings kept
// for a client that lost them with the connection; Sessions finds a session by its token. Each connection has one
// protocol. The protocol begins with a new session, and continues with another session when the client resumes the
// other session.
//
// Package internal/wire has the bytes of messages. Package v1 must not know the other WebSocket protocols.
package v1
