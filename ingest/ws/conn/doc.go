// Package conn is the core of all WebSocket protocols: the connections. Each connection has a reader goroutine, which
// also upgrades, closes and lingers, and a writer goroutine, with a bounded outbox between the streams and the
// writer. The writer's Encoder encodes results in the forms common to the protocols. Pings and read deadlines detect a
// disconnected client. One Ending is the reason for a connection's end: counted, and sent to the client as an error
// and a close code. The Registry holds all connections, their goroutines and counters, and the clients refused further
// connections after too many pings or text messages.
//
// A Protocol decides the meaning of messages: package conn must not know sessions, or the messages of one protocol.
package conn
