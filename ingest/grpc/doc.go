// Package grpc is the gRPC adapter: it owns the gRPC listener and serves the gRPC form of the
// Open Inference Protocol with Triton's extensions (service inference.GRPCInferenceService),
// the standard health protocol, for the whole server under the empty name and for
// each model under its own, and server reflection.
//
// The messages of inference are read and written by package oip from and to leased memory; a
// frame's data are copied once, from the transport's buffers, and those of a result not at
// all where they are large. The memory of each message is leased before it is read. All other messages are those of package inferencepb.
//
// It must not know worker groups, queues or batches.
package grpc
