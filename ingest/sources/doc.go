// Package sources reads video into the server: it decides which addresses a request may
// name, reads frames into leased memory, and opens a source again that fails, ends or
// stops sending.
//
// It owns the supervision of one source: opening, reading, waiting, opening again. It
// must not know protocols, models or where frames go. All adapters share it.
package sources
