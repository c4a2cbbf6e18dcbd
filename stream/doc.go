// Package stream defines the vocabulary of Millrace: Frame, Tensor, Request, Result, Stream, Sink, Policy, Code,
// Reason and model metadata. Every other package uses these words and no synonyms.
//
// Package stream owns a frame from acceptance to its ending: the mailbox, the order of results, freshness and the
// accounting. The package must not know protocols, batches, windows or workers: a stream puts its token into a Queue,
// and an Assembler makes requests from frames that are not requests by themselves.
package stream
