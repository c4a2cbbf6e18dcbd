// Package v1 is the subprotocol millrace.v1 over WebSocket: any number of streams in
// one session, which survives the loss of its connection. A session owns its channels
// (one for each stream), its outbox, and the endings that it keeps for a client which
// lost them with its connection; Sessions finds a session by its token. Each connection
// has one protocol, which begins with a new session and continues with another when the
// client resumes that.
//
// Package internal/wire has the bytes of messages. Package v1 must not know the other
// WebSocket protocols.
package v1
