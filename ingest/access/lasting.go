package access

import "sync"

// Lasting has the connections, calls and requests of authenticated clients that may last long, so that they can be ended
// when the credentials with which they were begun are not valid any more. It is safe for concurrent use.
type Lasting struct {
	mu  sync.Mutex
	all map[*lasting]struct{}
}

type lasting struct {
	of  *Principal
	end func(error)
}

// Add adds what a principal has begun. end is called at most once, with the reason; it must not block, and may be called
// while removed is. What nobody has begun, where clients need no credentials, is not added.
func (l *Lasting) Add(of *Principal, end func(error)) (removed func()) {
	if of == nil {
		return func() {}
	}
	one := &lasting{of, end}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*lasting]struct{}{}
	}
	l.all[one] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, one)
	}
}

// Check ends everything for whose principal valid returns an error.
func (l *Lasting) Check(valid func(*Principal) error) {
	l.mu.Lock()
	all := make([]*lasting, 0, len(l.all))
	for one := range l.all {
		all = append(all, one)
	}
	l.mu.Unlock()
	for _, one := range all {
		err := valid(one.of)
		if err == nil {
			continue
		}
		l.mu.Lock()
		_, there := l.all[one]
		delete(l.all, one)
		l.mu.Unlock()
		if there {
			one.end(err)
		}
	}
}

// Len returns how many there are.
func (l *Lasting) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
