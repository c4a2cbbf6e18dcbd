// Package batching forms batches across streams: the Ring and the Inbox in which tokens
// wait, the Intake that gathers batches from them, the Batcher that decides when a
// batch runs and with how many rows, the Batch itself and its bounded memory.
//
// Everything except the Ring is called under its caller's lock, without a goroutine, a
// timer or a clock. The package must not know workers or protocols.
package batching
