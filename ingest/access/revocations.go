package access

import "sync"

// Revocations has the long connections, calls and requests of authenticated clients. When the credentials of a client
// end, Check ends the client's connections, calls and requests. Revocations is safe for concurrent use.
type Revocations struct {
	mu  sync.Mutex
	all map[*revocation]struct{}
}

type revocation struct {
	of  *Principal
	end func(error)
}

// Add adds a connection, call or request of a principal. end is called at most once, with the reason. end must not
// block, and may be called during a call of removed. Add ignores a nil principal.
func (l *Revocations) Add(of *Principal, end func(error)) (removed func()) {
	if of == nil {
		return func() {}
	}
	one := &revocation{of, end}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*revocation]struct{}{}
	}
	l.all[one] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, one)
	}
}

// Check ends the connections, calls and requests of each principal for which valid returns an error.
func (l *Revocations) Check(valid func(*Principal) error) {
	l.mu.Lock()
	all := make([]*revocation, 0, len(l.all))
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

// Len returns the number of connections, calls and requests.
func (l *Revocations) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
