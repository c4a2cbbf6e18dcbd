package sources

import (
	"context"
	"sync"
	"time"

	"millrace/internal/processors"
)

// openLimit bounds the number of sources being opened at once. An opening takes about 0.3 s of processor time: if
// many cameras were opened together, no camera would return a frame in time. A source that does not answer keeps its
// place only for openHold.
type openLimit chan struct{}

// openHold is the longest time an opening keeps its place.
const openHold = 3 * time.Second

func newOpenLimit() openLimit { return make(openLimit, 2*processors.Count()) }

// enter waits for a place. leave, which may be called several times, frees the place. An error is ctx's cause.
func (g openLimit) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	back := sync.OnceFunc(func() { <-g })
	t := time.AfterFunc(openHold, back)
	return func() { t.Stop(); back() }, nil
}
