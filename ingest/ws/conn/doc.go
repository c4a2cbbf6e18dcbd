// Package conn is the core of all WebSocket protocols: the connections. A connection
// has one goroutine that reads (and upgrades, closes and lingers) and one that writes,
// with a bounded outbox between the streams and the writer. Pings and read deadlines
// detect a client that has disconnected. One Ending is the reason for a connection's
// end: it is counted, and sent to the client as an error and a close code. The Registry
// has all connections, their goroutines and their counters, and the clients that are
// refused further connections because they sent too many pings or text messages.
//
// A Protocol decides what messages mean: package conn must not know sessions, models,
// or which protocols there are.
package conn
