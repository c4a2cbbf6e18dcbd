package heap

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// Beside the memory budget and the free memory that is kept for reuse, which is at most a quarter of
// it, a server has connections, models and messages.
const beside = 256 << 20

var limit struct {
	mu      sync.Mutex
	most    int64 // that Limit has set; 0 = it has set none
	outside int64
}

// Limit sets the memory limit of Go's runtime from the memory budget of a server, in bytes: above 1.25
// times the budget and 256 MiB the collector runs more often than GOGC says, and returns memory to the
// system. It changes nothing when the environment sets GOMEMLIMIT. It is for the one server of a
// process.
func Limit(budget int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit.mu.Lock()
	defer limit.mu.Unlock()
	limit.most = math.MaxInt64
	if budget < limit.most/2 {
		limit.most = budget + budget/4 + beside
	}
	set()
}

// Outside lowers the limit by n bytes of the memory budget that other processes have, such as those
// that decode videos; negative: raises it again.
func Outside(n int64) {
	limit.mu.Lock()
	defer limit.mu.Unlock()
	limit.outside += n
	set()
}

// set sets the limit. The caller holds mu.
func set() {
	switch limit.most {
	case 0:
	case math.MaxInt64:
		debug.SetMemoryLimit(math.MaxInt64)
	default:
		debug.SetMemoryLimit(limit.most - limit.outside)
	}
}
