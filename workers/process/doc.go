// Package process is the worker kind process: a program of any language computes batches in a
// child process. It owns the child's start and end, the protocol with it (docs/process.md), the
// shared memory between the two, and what follows when the child does not do what it should:
// limits of time and memory, and batches that end it. Kinds that run a particular sort of program,
// such as python, are made of it by NewWorker.
//
// It must not know what the program computes, nor HTTP.
package process
