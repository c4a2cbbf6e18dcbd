package server

import (
	"errors"
	"io"
	"time"

	"millrace/ingest"
	"millrace/stream"
	"millrace/tracing"
)

// listening has the adapters of a server and the adapters' addresses.
type listening struct {
	adapters []ingest.Interface
	at       []Listener
	closers  []func() error                 // of the adapters that have bound an address
	requests map[string]tracing.RequestHook // of the listeners that count requests, by the listener's name
}

// count sets the function that counts the requests of a listener.
func (l *listening) count(name string, hook tracing.RequestHook) {
	if l.requests == nil {
		l.requests = map[string]tracing.RequestHook{}
	}
	l.requests[name] = hook
}

// add adds the adapter of a listener, and binds the adapter's address if the adapter has an address.
func (l *listening) add(of *listener, a ingest.Interface, encrypted bool) error {
	l.adapters = append(l.adapters, a)
	if c, ok := a.(io.Closer); ok {
		l.closers = append(l.closers, c.Close)
	}
	binds, ok := a.(listens)
	if !ok {
		return nil
	}
	taken, err := binds.Listen()
	if err != nil {
		return stream.Errorf(stream.Unavailable, of.setting(), "%w", err)
	}
	l.at = append(l.at, of.at(taken.String(), encrypted))
	return nil
}

// named returns the listener of a name, or the zero Listener.
func (l *listening) named(name string) Listener {
	for _, one := range l.at {
		if one.Name == name {
			return one
		}
	}
	return Listener{}
}

// adapter returns the adapter of a name, or nil.
func (l *listening) adapter(name string) ingest.Interface {
	for _, a := range l.adapters {
		if a.Name() == name {
			return a
		}
	}
	return nil
}

// serving waits until every adapter serves, and returns the error of an adapter that cannot serve.
func (l *listening) serving(failed <-chan error) error {
	for _, a := range l.adapters {
		if a, ok := a.(ingest.Starter); ok {
			select {
			case <-a.Serving():
			case err := <-failed:
				return err
			}
		}
	}
	return nil
}

// goAway tells the clients of all adapters when the server ends.
func (l *listening) goAway(until time.Time) {
	for _, a := range l.adapters {
		if a, ok := a.(ingest.Drainer); ok {
			a.GoAway(until)
		}
	}
}

// close releases the addresses when Serve will not be called.
func (l *listening) close() error {
	var errs []error
	for _, c := range l.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
