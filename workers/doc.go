// Package workers runs batches. A Worker is one instance of a model; a Group has the workers of one model, version
// and set of load parameters; the Manager has the groups. Each kind of worker has its own folder.
//
// The package owns the goroutines that run models, with limits, failures and replacement. The package must not know
// protocols or adapters.
package workers
