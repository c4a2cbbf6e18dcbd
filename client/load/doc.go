// Package load puts load on a running server and reports rates, latencies and endings.
//
// It owns the schedule of frames (closed and open loop), the streams that send them over
// WebSocket, REST or calls in this process, the counts of endings, and the report. It must
// not know the server's internals, since it measures what a client sees.
//
// In a closed loop each stream keeps a window of frames in flight, so that the server
// determines the rate: this measures capacity. In an open loop frames are due at a fixed
// rate whatever the server does, and latencies are measured from the time at which a
// frame was due, not from when it could be sent. The delays of all frames that were due
// while the server stalled are thus part of the result, as they would be for its users.
package load
