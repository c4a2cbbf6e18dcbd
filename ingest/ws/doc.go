// Package ws is the WebSocket adapter: frames in as binary messages, one reply for each. The message layout is described in
// docs/protocol.md.
//
// It owns the routes, the tickets, and the choice of the protocol of each connection; Host and Origin are internal/httpd's.
// Connections are package conn's, from the upgrade on; what their messages mean is the protocols': plain, calls and v1, none
// of which knows another.
//
// It must not know worker groups, queues or batches.
package ws
