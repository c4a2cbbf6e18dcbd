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

// trim gives the free memory of the C library back to the system. glibc keeps free memory for each thread that has allocated, and
// ONNX Runtime loads models on the threads of many goroutines, so that each load would leave some memory behind.
func trim() { C.trim() }
