// Package workers runs batches: a Worker is one instance of a model, a Group the
// workers that share a model, its version and its load parameters, and the Manager has
// the groups. Each kind of worker has its own folder.
//
// The package owns the goroutines that run models, their limits, failures and
// replacement. It must not know protocols or adapters.
package workers
