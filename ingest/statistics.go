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
	Success, Fail DurationTotal
	// Of frames run: the times in the queue, in the preparation of inputs, in the worker, and with the outputs.
	Queue, ComputeInput, ComputeInfer, ComputeOutput DurationTotal
	// Of requests to a model with a cache.
	CacheHit, CacheMiss DurationTotal

	Batches []BatchStatistics // by size
}

// BatchStatistics counts the time of the runs with a number of rows.
type BatchStatistics struct {
	Rows                                      uint64
	ComputeInput, ComputeInfer, ComputeOutput DurationTotal
}

// DurationTotal is how often something was done, and the time of all together.
type DurationTotal struct {
	Count uint64
	Time  time.Duration
}
