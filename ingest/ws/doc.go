// Package ws is the WebSocket adapter: each binary message is a frame, and each frame
// gets one reply. docs/protocol.md describes the messages.
//
// It owns the routes and the choice of the protocol of each connection;
// internal/httpd checks Host and Origin. Package conn has the connections, from the
// upgrade on, and the protocols decide what their messages mean: plain, calls and v1,
// none of which knows another.
//
// It must not know worker groups, queues or batches.
package ws
