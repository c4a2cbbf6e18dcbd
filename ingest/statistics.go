package ingest

import "time"

// Statistics counts the time and rows of the requests to a version of a model since the model was loaded. Answers
// from a cache did not run.
type Statistics struct {
	Model, Version string
	Last           time.Time // of the last request; zero = no request yet
	Rows           uint64    // rows run
	Runs           uint64    // of the worker

	// Total time of requests, by outcome.
	Success, Fail Spent
	// Of frames run: the times in the queue, in the preparation of inputs, in the worker, and with the outputs.
	Queue, ComputeInput, ComputeInfer, ComputeOutput Spent
	// Of requests to a model with a cache.
	CacheHit, CacheMiss Spent

	Batches []BatchStatistics // by size
}

// BatchStatistics counts the time of the runs with a number of rows.
type BatchStatistics struct {
	Rows                                      uint64
	ComputeInput, ComputeInfer, ComputeOutput Spent
}

// Spent is how often something was done, and the time of all together.
type Spent struct {
	Count uint64
	Time  time.Duration
}
