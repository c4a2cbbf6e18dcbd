// Package servertest has what tests with a server share: servers that run on free ports, clients of each protocol,
// models, pictures and sound, and the reading of traces. Package servertest does not know what a test asserts.
package servertest
