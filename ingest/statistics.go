package ingest

import "time"

// Statistics has what the requests to a version of a model took since the model was loaded. Answers of a cache were not run.
type Statistics struct {
	Model, Version string
	Last           time.Time // of the last request; zero = there was none
	Rows           uint64    // that were run
	Runs           uint64    // of the worker

	// Of requests: their whole time, by how they ended.
	Success, Fail Spent
	// Of frames that were run: their times in the queue, in the preparation of inputs, in the worker, and with the outputs.
	Queue, ComputeInput, ComputeInfer, ComputeOutput Spent
	// Of requests to a model with a cache.
	CacheHit, CacheMiss Spent

	Batches []BatchStatistics // by size
}

// BatchStatistics has what the runs with a number of rows took.
type BatchStatistics struct {
	Rows                                      uint64
	ComputeInput, ComputeInfer, ComputeOutput Spent
}

// Spent is how often something was done, and the time of all together.
type Spent struct {
	Count uint64
	Time  time.Duration
}
