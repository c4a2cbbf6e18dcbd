//go:build cgo && !linux

package onnx

// trim does nothing where the C library is not glibc.
func trim() {}
