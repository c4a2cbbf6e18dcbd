// Package workers runs batches: Worker is one instance of a model, Group the
// workers that share a model, its version and its load parameters, Manager the
// groups. One folder per kind of worker.
//
// It owns goroutines that run models, their limits, failures and replacement.
// It must not know protocols or adapters.
package workers
