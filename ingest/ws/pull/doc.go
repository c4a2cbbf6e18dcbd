// Package pull reads videos for WebSocket clients: one at a time for each connection,
// and a bounded number in all. It owns the goroutine that reads a video and feeds its
// stream. The protocols encode the results.
package pull
