// Package results has the stages before and after a worker's runs: before a run a stage may answer a frame with an
// earlier result, after a run a stage makes results from the worker's outputs. Each stage has its folder:
// postprocess, gate, tracking, events.
//
// The package owns the order of the stages and the places for the stages' state in a stream. The package must not
// know the program that ran the model, the source of frames, or the receiver of results.
package results
