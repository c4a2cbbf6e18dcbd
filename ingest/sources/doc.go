// Package sources brings video into the server: it says which addresses a
// request may name, reads frames into leased memory, and keeps a source going
// that fails, ends or falls silent.
//
// It owns the supervision of one source: opening, reading, waiting, opening
// again. It must not know protocols, models or where frames go. All adapters
// share it.
package sources
