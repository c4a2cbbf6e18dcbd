// Package grpc is the gRPC adapter. The adapter owns the gRPC listener and serves the gRPC form of the Open Inference
// Protocol with Triton's extensions (service inference.GRPCInferenceService), the standard health protocol (the empty
// name for the server, a model's name for the model), and server reflection.
//
// Package oip reads and writes inference messages in leased memory. A frame's data are copied once, from the
// transport's buffers; large outputs of a result are not copied. The memory of each message is leased before reading
// the message. Package inferencepb reads and writes all other messages.
//
// Package grpc must not know worker groups, queues or batches.
package grpc
