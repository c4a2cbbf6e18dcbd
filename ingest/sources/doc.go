// Package sources reads video into the server: package sources decides which addresses a request may name, reads
// frames into leased memory, and reopens a source after a failure, an end or a stall.
//
// Package sources owns the supervision of a source: opening, reading, waiting, reopening. It must not know protocols,
// models or the destination of frames. All adapters share package sources.
package sources
