package workers

import (
	"millrace/workers/results"
	"millrace/workers/results/gate"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// The stages, in the order in which outputs pass through them.
func init() {
	results.Register(
		postprocess.Stage,
		gate.Stage,
		tracking.Stage,
	)
}
