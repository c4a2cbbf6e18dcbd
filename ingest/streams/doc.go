// Package streams runs server streams: a source, the model that gets its frames, and
// sinks that take the results, as long as the server runs. Streams come from the
// configuration and over REST; results go to files, webhooks, sockets and watchers.
//
// It owns those streams and the long replies to their watchers. It must not know how
// video is opened (ingest/sources), nor groups or batches.
package streams
