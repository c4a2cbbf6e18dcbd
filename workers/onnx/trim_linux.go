//go:build cgo

package onnx

// #include <features.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void trim(void) { malloc_trim(0); }
// #else
// static void trim(void) {}
// #endif
import "C"

// trim returns the free memory of the C library to the system. glibc keeps free memory for each thread with
// allocations, and ONNX Runtime loads models on the threads of many goroutines, so that each load would leave some
// memory behind.
func trim() { C.trim() }
