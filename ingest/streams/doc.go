// Package streams runs server streams. A server stream has a source, models for the source's frames, and sinks for
// the results, and runs as long as the server. The configuration and REST requests add streams; results go to files,
// webhooks, sockets and watchers.
//
// Package streams owns the server streams and the long replies to watchers. The package must not know how package
// ingest/sources opens video, nor know groups or batches.
package streams
