// Package results has the stages before and after a worker's runs: before a run a stage
// may answer a frame with an earlier result, after a run it makes results from the
// worker's outputs. Each has its folder: postprocess, gate, tracking.
//
// The package owns the order of the stages and the places where each keeps a stream's
// state. It must not know what ran the model, where frames come from, or where results
// go.
package results
