// Package batching forms batches across streams: the Ring that tokens
// enter by, the Intake that opens batches from it, the Batcher that decides
// when and how many, the Batch itself and the bounded memory under it.
//
// Everything here but the Ring is plain logic under its caller's lock: there is
// no goroutine, no timer and no clock. It must not know workers or protocols.
package batching
