package heap

import (
	"math"
	"os"
	"runtime/debug"
)

// Beside the memory budget and the free memory that is kept for reuse, which is at most a quarter of
// it, a server has connections, models and messages.
const beside = 256 << 20

// Limit sets the memory limit of Go's runtime from the memory budget of a server, in bytes: above 1.25
// times the budget and 256 MiB the collector runs more often than GOGC says, and returns memory to the
// system. It changes nothing when the environment sets GOMEMLIMIT. It is for the one server of a
// process.
func Limit(budget int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := int64(math.MaxInt64)
	if budget < limit/2 {
		limit = budget + budget/4 + beside
	}
	debug.SetMemoryLimit(limit)
}
