// Package stream is the vocabulary of Millrace: Frame, Tensor, Request, Result,
// Stream, Sink, Policy, Code, Reason and model metadata. Every other package
// speaks these words and no synonyms.
//
// It owns the life of a frame between its acceptance and its one ending: the
// mailbox, the order of results, freshness and the accounting. It must not know
// of protocols, queues, batches, windows or workers: a stream feeds an Endpoint, and
// an Assembler makes requests of frames that are none by themselves.
package stream
