// Package graph is the worker kind that runs each request through other models. The package owns the plan made of the
// configured steps, and the runs of requests. A step is a loaded model; the step's inputs and outputs are named
// tensors, passed between steps without copies. A step runs as soon as all its inputs are present. The package must
// not know protocols.
package graph
