// Package remote is the worker kind that forwards batches to a model of another server of the Open Inference
// Protocol, over gRPC or REST: the server's address is the source. It owns the connections to that server, the
// translation of tensors and errors, and the watch of the server's health. It must not know how this server's own
// clients speak.
package remote
