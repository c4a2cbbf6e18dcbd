// Package graph is the worker kind that runs each request through other models: it owns
// the plan that is made of the configured steps, and the runs of requests through it. A
// step is a loaded model; its inputs and outputs are named tensors, which pass between the
// steps without copies. A step runs as soon as its inputs are there. The package must not
// know protocols.
package graph
