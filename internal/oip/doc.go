// Package oip encodes and decodes the messages of the Open Inference Protocol (KServe v2): infer requests and replies
// in JSON, with the binary tensor extension, and in the protobuf of the gRPC form; and for REST also errors, server
// and model metadata, and the repository index.
//
// The package owns the text and byte layout of these messages and nothing else. The package works on plain types,
// starts no goroutine, keeps no state between calls, and must not know HTTP, models, streams, batches or buffers: the
// caller provides the memory for tensors (see DecodeRequest).
//
// Raw tensor data is little endian and row-major without padding. Every element of a BYTES tensor is a 32-bit length
// followed by as many bytes.
//
// All functions may be called concurrently as long as each call has its own destination.
package oip
