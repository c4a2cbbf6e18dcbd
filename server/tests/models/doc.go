// Package models tests the loading of models, the model repository, declared tensors, ONNX models, and the contract of
// each kind of worker.
package models
