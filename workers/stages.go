package workers

import (
	"millrace/workers/results"
	"millrace/workers/results/gate"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// The stages, in the order of their processing.
func init() {
	results.Register(
		postprocess.Stage,
		gate.Stage,
		tracking.Stage,
	)
}
