package streams

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// openLimit bounds the sources that are being opened at once. An opening costs some
// 0.3 s of a processor: of many cameras opened together none would give a frame
// in time. One that does not answer keeps its place for a moment only.
type openLimit chan struct{}

// openHold is how long an opening keeps its place at most.
const openHold = 3 * time.Second

func newOpenLimit() openLimit { return make(openLimit, 2*runtime.GOMAXPROCS(0)) }

// enter waits for a place, which the caller gives back by leave, once or more
// often. An error is ctx's cause.
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
