// Package pull reads videos for WebSocket clients: one at a time per connection, and a bounded number in all. Package
// pull owns the goroutine that reads a video and feeds the video's stream. The protocols encode the results.
package pull
