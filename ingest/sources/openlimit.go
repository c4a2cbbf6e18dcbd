package sources

import (
	"context"
	"sync"
	"time"

	"millrace/internal/processors"
)

// openLimit bounds the number of sources that are being opened at once. An opening
// takes about 0.3 s of a processor: if many cameras were opened together, none would
// return a frame in time. A source that does not answer keeps its place only for
// openHold.
type openLimit chan struct{}

// openHold is the longest time for which an opening keeps its place.
const openHold = 3 * time.Second

func newOpenLimit() openLimit { return make(openLimit, 2*processors.Real()) }

// enter waits for a place, which leave frees; leave may be called more than once. An
// error is ctx's cause.
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
