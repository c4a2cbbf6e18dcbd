package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"

	"millrace/internal/accept"
	"millrace/internal/handover"
	"millrace/stream"
)

// The addresses of management have connections of their own: 1/managingShare of those of all others, for which the
// limit of open files leaves room, and at least leastManaging.
const (
	managingShare = 16
	leastManaging = 16
)

// connections bounds and encrypts the connections of all listeners, takes the listening sockets of the server that
// this server replaces, and hands the sockets over to the next server (the setting handover).
type connections struct {
	log      *slog.Logger
	tls      encryption
	limit    *accept.Limit   // of all listeners together, except management
	managing *accept.Limit   // of the management listeners, so that other clients cannot exhaust the limit
	handover string          // the path of the setting's socket; "" = off
	before   *handover.Taken // the server that this server replaces; nil = none
	offer    *handover.Offer // nil = the setting is off, or the server does not serve yet
}

// newConnections returns the bounds of a configuration, reads or requests the certificate, and logs a limit of open
// files below the configured connections. Connections from the proxies have no limit by address.
func newConnections(cfg *Config, proxies []netip.Prefix, log *slog.Logger) (*connections, error) {
	most, files := accept.Bound(cfg.Limits.MaxConnections)
	c := &connections{log: log,
		limit: &accept.Limit{Max: most, PerAddress: cfg.Limits.MaxPerAddress, Trusted: proxies, Log: log},
		managing: &accept.Limit{Max: max(most/managingShare, leastManaging), PerAddress: cfg.Limits.MaxPerAddress,
			Trusted: proxies, Log: log}}
	if path, ok := accept.SocketPath(cfg.Handover); ok {
		c.handover = path
	}
	var err error
	if c.tls, err = newEncryption(cfg, log); err != nil {
		return nil, err
	}
	if most < cfg.Limits.MaxConnections {
		log.Warn("fewer connections than limits.max_connections can be open: raise the limit of open files "+
			"(ulimit -n), or lower the setting",
			"limits.max_connections", cfg.Limits.MaxConnections, "possible", most, "open files", files)
	}
	return c, nil
}

// listen listens on the address of a registered adapter, with TLS if the server has a certificate.
func (c *connections) listen(name, address string) (net.Listener, error) {
	ln, err := c.limit.Listen(name, address)
	if err == nil && c.tls.on() {
		ln = tls.NewListener(ln, c.tls.config)
	}
	return ln, err
}

// stats returns the counters of all listeners.
func (c *connections) stats() map[string]accept.Stats {
	all := c.limit.Stats()
	maps.Copy(all, c.managing.Stats())
	return all
}

// open returns the number of open connections.
func (c *connections) open() int { return c.limit.Open() + c.managing.Open() }

// takeSockets takes the sockets of the predecessor, when this server replaces a running server.
func (c *connections) takeSockets() (err error) {
	if c.handover == "" {
		return nil
	}
	if c.before, err = handover.Take(c.handover); err != nil {
		return stream.Errorf(stream.Unavailable, "handover", "%w", err)
	}
	if before := c.before; before != nil {
		inherit := func(name string) (net.Listener, error) { return before.Listener(name) }
		c.limit.Inherit, c.managing.Inherit = inherit, inherit
	}
	return nil
}

// replaces reports whether this server replaces another server.
func (c *connections) replaces() bool { return c.before != nil }

// takeOver offers the sockets to the next server, and tells the server that this server replaces to leave. This server
// serves.
func (c *connections) takeOver() (err error) {
	if c.handover == "" {
		return nil
	}
	if c.offer, err = handover.NewOffer(c.handover, func() []handover.Socket {
		return append(c.limit.Sockets(), c.managing.Sockets()...)
	}); err != nil {
		return stream.Errorf(stream.Unavailable, "handover", "%w", err)
	}
	if c.before == nil {
		return nil
	}
	if err := c.before.Serving(); err != nil {
		c.log.Warn("the server that was replaced is still there: connections may reach it", "error", err)
	}
	return nil
}

// replaced is closed when another server has taken over; nil = never.
func (c *connections) replaced() <-chan struct{} {
	if c.offer == nil {
		return nil
	}
	return c.offer.Taken()
}

// errReplaced is the reason why a server ends after another server has taken over.
var errReplaced = errors.New("another server has taken over")

// leave accepts no further connections, and tells the next server.
func (c *connections) leave() {
	c.limit.Pause()
	c.managing.Pause()
	c.offer.Leave()
}

// close gives back what another server has passed on, and ends the offer.
func (c *connections) close() {
	if c.before != nil {
		c.before.Close()
	}
	if c.offer != nil {
		_ = c.offer.Close()
	}
}
