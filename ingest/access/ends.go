package access

import (
	"context"
	"time"

	"millrace/stream"
)

// endInterval is the time between two checks of the credentials of connections and calls.
const endInterval = time.Second

// Current returns a principal with the present roles and models. Errors: Unauthenticated, when the credentials of
// the principal are no longer valid.
func (a *Access) Current(p *Principal) (*Principal, error) {
	if a == nil || a.sessions == nil {
		return nil, ErrUnknownClient
	}
	if a.open {
		return p, nil
	}
	return a.currentAt(p, time.Now())
}

// currentAt is Current at a time.
func (a *Access) currentAt(p *Principal, now time.Time) (*Principal, error) {
	if !p.Expires.IsZero() && !now.Before(p.Expires) {
		return nil, stream.Errorf(stream.Unauthenticated, "", "the credentials of %s have expired: authenticate again",
			p.Name)
	}
	again := a.current(p, now)
	switch {
	case again == nil && p.Session != "":
		return nil, stream.Errorf(stream.Unauthenticated, "", "the session of %s has ended: log in again", p.Name)
	case again == nil:
		return nil, stream.Errorf(stream.Unauthenticated, "", "the key or entry of %s was removed or has expired",
			p.Name)
	}
	return again, nil
}

// OnEnd calls end once, with the reason, when the credentials of a principal end, or the roles or models of the
// principal change. end must not block. stop must be called when the connection or call has ended; end is not
// called after stop.
func (a *Access) OnEnd(p *Principal, end func(error)) (stop func()) { return a.revocations.Add(p, end) }

// Pending returns the number of connections and calls that have called OnEnd and have not ended.
func (a *Access) Pending() int { return a.revocations.Len() }

// Watch checks the credentials of connections and calls every second, until ctx ends.
func (a *Access) Watch(ctx context.Context) {
	ticker := time.NewTicker(endInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			a.Check(now)
		case <-ctx.Done():
			return
		}
	}
}

// Check ends connections and calls whose credentials are no longer valid at a time.
func (a *Access) Check(now time.Time) {
	a.revocations.Check(func(p *Principal) error {
		again, err := a.currentAt(p, now)
		if err == nil {
			err = p.Changed(again)
		}
		return err
	})
}
