// Package onnx is the kind of worker that runs ONNX models with ONNX Runtime.
//
// It owns the search for and the loading of the library, the sessions that workers
// share, and the memory that tensors are bound to. It must not know pictures or
// what the outputs mean: the group decodes frames before Run, and its
// stages process the outputs.
package onnx
