// Package batching forms batches across streams: tokens wait in the Ring and the Inbox, the Intake gathers batches
// from the tokens, the Batcher decides when a batch runs and with how many rows, and the Batch has bounded memory.
//
// Everything except the Ring is called under its caller's lock, without a goroutine, a timer or a clock. The package
// must not know workers or protocols.
package batching
