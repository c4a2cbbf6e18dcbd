// Package ws is the WebSocket adapter: each binary message is a frame, and each frame gets one reply.
// docs/protocol.md describes the messages.
//
// Package ws owns the routes and selects the protocol of each connection; internal/httpd checks Host and Origin.
// Package conn has the connections, from the upgrade on. The protocols plain, calls and v1 handle the messages; no
// protocol knows another.
//
// Package ws must not know worker groups, queues or batches.
package ws
