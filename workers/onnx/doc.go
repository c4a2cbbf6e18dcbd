// Package onnx is the kind of worker that runs ONNX models with ONNX Runtime.
//
// It owns the finding and loading of the library, the sessions that instances
// share, and the memory that tensors are bound to. It must not know pictures or
// what the outputs mean: the group decodes frames before Run and makes results
// of the outputs after it.
package onnx
