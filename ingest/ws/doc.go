// Package ws is the WebSocket adapter: frames in as binary messages, one reply
// for each. The message layout is described in docs/protocol.
//
// It owns the sessions: their two goroutines (the reader, which reads, submits
// and ends the session, and the writer, which alone writes), their outboxes,
// the accounting of messages against replies, and the videos that sessions ask
// the server to pull. Routes, Host and Origin are internal/httpd's; after the
// upgrade nothing of the HTTP server is involved any more, so the sessions are
// registered, stopped and waited for here.
//
// It must not know worker groups, queues or batches.
package ws
