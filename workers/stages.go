package workers

import (
	// These stages register themselves, each with its phase in the chain (results.Phase).
	_ "millrace/workers/results/events"
	_ "millrace/workers/results/gate"
	_ "millrace/workers/results/postprocess"
	_ "millrace/workers/results/tracking"
)
