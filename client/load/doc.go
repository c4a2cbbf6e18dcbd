// Package load puts load on a running server and reports rates, latencies and endings.
//
// The package owns the schedule of frames (closed and open loop), the streams that send frames over WebSocket, REST
// or calls in this process, the counts of endings, and the report. Package load must not know the server's internals:
// the measurements are from a client's point of view.
//
// In a closed loop each stream keeps a window of frames in flight, so that the server determines the rate: a closed
// loop measures capacity. In an open loop frames are due at a fixed rate regardless of the server, and latencies
// count from the due time of a frame, not from the time of sending. The delays of all frames due while the server
// stalled are thus part of the result, as for real users.
package load
