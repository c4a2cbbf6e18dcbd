// Package grpc is the gRPC adapter: it owns the gRPC listener and serves the
// standard health protocol, for the whole server under the empty name and for
// each model under its own.
//
// It must not know worker groups, queues or batches.
package grpc
