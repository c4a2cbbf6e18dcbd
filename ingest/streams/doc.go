// Package streams runs cameras in the server itself: a source, the model that
// sees its frames, and sinks that take the results, for as long as the server
// runs. Streams come from the configuration and over REST; results go to files,
// webhooks, and whoever watches.
//
// It owns the life of those streams and the long replies to their watchers. It
// must not know how video is opened (ingest/sources), nor groups or batches.
package streams
