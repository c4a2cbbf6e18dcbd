// Package onnx is the kind of worker that runs ONNX models with ONNX Runtime.
//
// The package owns the search for and the loading of the library, the sessions shared by workers, and the memory
// bound to tensors. The package must not know pictures or the meaning of outputs: the group decodes frames before
// Run, and the group's stages process the outputs.
package onnx
