// Package process is the worker kind process: a program of any language computes batches in a child process. The
// package owns the start and the end of the child, the protocol (docs/process.md), the shared memory, and the
// handling of a child's faults: limits of time and memory, and fatal batches. Kinds for a particular sort of program,
// such as python, build on NewWorker.
//
// The package must not know the computation of the program, nor HTTP.
package process
