package server

import (
	"context"
	"errors"
	"net"
	"time"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/handover"
	"millrace/stream"
)

// replacement is how a server replaces another server, and is replaced, see the setting handover.
type replacement struct {
	before *handover.Taken // the server that this server replaces; nil = none
	offer  *handover.Offer // nil = the setting is off, or the server does not serve yet
}

// takeSockets takes the sockets of the server that this server replaces, if there is one.
func (s *Server) takeSockets() (err error) {
	path, ok := accept.SocketPath(s.cfg.Handover)
	if !ok {
		return nil
	}
	if s.replaces.before, err = handover.Take(path); err != nil {
		return stream.Errorf(stream.Unavailable, "handover", "%w", err)
	}
	if before := s.replaces.before; before != nil {
		inherit := func(name string) (net.Listener, error) { return before.Listener(name) }
		s.limit.Inherit, s.managing.Inherit = inherit, inherit
	}
	return nil
}

// takeOver offers the sockets to the next server, and tells the server that this server replaces to leave. This server
// serves.
func (s *Server) takeOver() (err error) {
	path, ok := accept.SocketPath(s.cfg.Handover)
	if !ok {
		return nil
	}
	if s.replaces.offer, err = handover.NewOffer(path, func() []handover.Socket {
		return append(s.limit.Sockets(), s.managing.Sockets()...)
	}); err != nil {
		return stream.Errorf(stream.Unavailable, "handover", "%w", err)
	}
	if s.replaces.before == nil {
		return nil
	}
	if err := s.replaces.before.Serving(); err != nil {
		s.log.Warn("the server that was replaced is still there: connections may reach it", "error", err)
	}
	return nil
}

// close gives back what another server has passed on, and ends the offer.
func (r *replacement) close() {
	if r.before != nil {
		r.before.Close()
	}
	if r.offer != nil {
		_ = r.offer.Close()
	}
}

// replaced is closed when another server has taken over; nil = never.
func (r *replacement) replaced() <-chan struct{} {
	if r.offer == nil {
		return nil
	}
	return r.offer.Taken()
}

// leave stops accepting, answers what arrives on open connections, and asks their clients to close them, until all
// connections are closed, drain has passed, or ctx ends.
func (s *Server) leave(ctx context.Context) {
	s.log.Info("another server has taken over", "limit", s.cfg.Drain)
	s.limit.Pause()
	s.managing.Pause()
	s.replaces.offer.Leave()
	until := time.Now().Add(s.cfg.Drain)
	for _, a := range s.listening.adapters {
		switch a := a.(type) {
		case ingest.Leaver:
			a.Leave()
		case ingest.Drainer:
			a.GoAway(until)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.limit.Open()+s.managing.Open() > 0 && time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errReplaced is the reason why a server ends after leave.
var errReplaced = errors.New("another server has taken over")
