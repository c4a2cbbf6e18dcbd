// Package pull reads videos on behalf of a WebSocket client: one at a time for each connection, a bounded number in all. It
// owns the goroutine that reads one and feeds its stream. How results are coded is the protocol's.
package pull
