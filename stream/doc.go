// Package stream defines the vocabulary of Millrace: Frame, Tensor, Request, Result,
// Stream, Sink, Policy, Code, Reason and model metadata. Every other package uses these
// words and no synonyms.
//
// It owns a frame from its acceptance to its one ending: the mailbox, the order of
// results, freshness and the accounting. It must not know of protocols, batches,
// windows or workers: a stream puts its token into a Queue, and an Assembler makes
// requests of frames that are not requests by themselves.
package stream
