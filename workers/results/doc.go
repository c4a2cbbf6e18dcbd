// Package results is the stages beside a worker's runs: before a run a stage may
// answer a frame with an earlier result, after a run it makes results of the
// worker's outputs. A folder each: postprocess, gate, tracking.
//
// It owns the order of the stages and where each keeps something for a stream. It
// must not know what ran the model, how frames come, or where results go.
package results
