// Package load puts load on a running server and tells what came of it.
//
// It owns: the schedule of frames (closed and open loop), the streams that send
// them over WebSocket, REST or a call in this process, the account of every
// frame's ending, and the report. It must not know the server's inside: what it
// says is what a client sees.
//
// In a closed loop each stream keeps a window of frames on their way, so the
// server sets the pace: that measures capacity. In an open loop frames are due
// at a fixed rate whatever the server does, and every time is counted from the
// moment a frame was due, not from when it could be sent. A server that stalls
// is thus charged for all frames that were due meanwhile, as its users are.
package load
