// Package remote is the worker kind that forwards batches to a model of another server of the Open Inference
// Protocol, over gRPC or REST: the server's address is the source. The package owns the connections to the upstream
// server, the translation of tensors and errors, and the watch of the upstream server's health. Connect
// is for kinds that start a server themselves. The package must not know the protocols of this server's own clients.
package remote
