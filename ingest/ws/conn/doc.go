// Package conn is the core that all WebSocket protocols stand on: connections and what every one of them has. A connection
// is one goroutine that reads (and upgrades, closes and lingers) and one that alone writes, with a bounded outbox between
// the streams and the writer; pings and read deadlines keep it alive; one Ending says why it ends, is counted, and tells the
// client with an error and a close code. The Registry has all connections, their goroutines and what is counted of them.
//
// What messages mean is the Protocol's: package conn must not know sessions, models, or which protocols there are.
package conn
