// Package history keeps the events of server streams, and the counts of their rules, in an SQLite database.
//
// Writing never delays a frame: events wait in memory, within a bound, and a goroutine writes batches. When the
// database fails (a full disk, a removed folder, a damaged file), the goroutine opens it again, and events beyond the
// bound are counted as lost. A damaged database is renamed and a new one begins.
//
// The package knows events (stream/rules) and no streams, models or clients.
package history
