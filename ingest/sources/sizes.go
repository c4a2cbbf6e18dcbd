package sources

import (
	"sync"

	"millrace/internal/video"
)

// sizes collects the frame sizes needed by the subscriptions of a shared source. The source has the needs of all the
// subscriptions in of. The callbacks of a subscription, called with shared.mu held, may change sizes: sizes has a
// separate lock.
type sizes struct {
	source *Source
	mu     sync.Mutex
	of     map[*Subscription][]video.TargetSize
}

func newSizes(source *Source) *sizes {
	return &sizes{source: source, of: map[*Subscription][]video.TargetSize{}}
}

// set sets the needs of a subscription. Without needs, the subscription needs the source's own size.
func (z *sizes) set(s *Subscription, needs []video.TargetSize) {
	if len(needs) == 0 {
		needs = []video.TargetSize{{}}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.of[s] = needs
	z.apply()
}

// remove removes a subscription. After the last subscription the source keeps the size.
func (z *sizes) remove(s *Subscription) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.of, s)
	if len(z.of) > 0 {
		z.apply()
	}
}

// apply passes all needs to the source. mu is held.
func (z *sizes) apply() {
	var all []video.TargetSize
	for _, n := range z.of {
		all = append(all, n...)
	}
	z.source.Resize(all)
}
