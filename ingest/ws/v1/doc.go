// Package v1 is the subprotocol millrace.v1 over WebSocket: any number of streams in one session, which outlives its
// connection. A session owns its channels (one for each stream), its outbox, and the endings that it keeps for a client which
// lost them with its connection; Sessions finds a session by its token. Each connection has one protocol, which begins with a
// session of its own and goes on with another when the client resumes that.
//
// The bytes of messages are internal/wire's. It must not know the other protocols of WebSocket.
package v1
