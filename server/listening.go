package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/stream"
	"millrace/tracing"
)

// listening opens, serves and ends the adapters of a server, and knows the adapters' addresses.
type listening struct {
	adapters []ingest.Interface
	at       []Listener
	closers  []func() error                 // of the adapters that have bound an address
	requests map[string]tracing.RequestHook // of the listeners that count requests, by the listener's name
	failed   chan error                     // the errors of adapters that cannot serve; nil before serve
}

// count sets the function that counts the requests of a listener.
func (l *listening) count(name string, hook tracing.RequestHook) {
	if l.requests == nil {
		l.requests = map[string]tracing.RequestHook{}
	}
	l.requests[name] = hook
}

// hook returns the function that counts the requests of a listener, or nil.
func (l *listening) hook(name string) tracing.RequestHook { return l.requests[name] }

// bound adds the address of a listener.
func (l *listening) bound(of *listener, addr net.Addr, encrypted bool) {
	l.at = append(l.at, of.at(addressOf(addr), encrypted))
}

// addresses returns the addresses of all listeners.
func (l *listening) addresses() []Listener { return l.at }

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
	l.bound(of, taken, encrypted)
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

// adapterOf returns the adapter of a type, or the zero value.
func adapterOf[T ingest.Interface](l *listening) (found T) {
	for _, a := range l.adapters {
		if a, ok := a.(T); ok {
			return a
		}
	}
	return found
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

// serve runs all adapters until ctx ends. wg waits for the adapters.
func (l *listening) serve(ctx context.Context, gate *ingest.Gate, wg *sync.WaitGroup) {
	l.failed = make(chan error, len(l.adapters))
	for _, a := range l.adapters {
		wg.Go(func() {
			if err := a.Serve(ctx, gate); err != nil {
				l.failed <- fmt.Errorf("%s: %w", a.Name(), err)
			}
		})
	}
}

// failures has the errors of adapters that cannot serve.
func (l *listening) failures() <-chan error { return l.failed }

// serving waits until every adapter serves, and returns the error of an adapter that cannot serve.
func (l *listening) serving() error {
	for _, a := range l.adapters {
		if a, ok := a.(ingest.Starter); ok {
			select {
			case <-a.Serving():
			case err := <-l.failed:
				return err
			}
		}
	}
	return nil
}

// each calls serve with each adapter.
func (l *listening) each(serve func(ingest.Interface)) {
	for _, a := range l.adapters {
		serve(a)
	}
}

// measure adds up what the adapters have for the metrics.
func (l *listening) measure(to *ingest.Metrics) {
	for _, a := range l.adapters {
		if a, ok := a.(ingest.Measured); ok {
			to.Add(a.Metrics())
		}
	}
}

// leave has the clients of all adapters close their connections, at the latest until the time.
func (l *listening) leave(until time.Time) {
	for _, a := range l.adapters {
		switch a := a.(type) {
		case ingest.Leaver:
			a.Leave()
		case ingest.Drainer:
			a.GoAway(until)
		}
	}
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
