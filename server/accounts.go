package server

import (
	"net"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/access"
	"millrace/internal/accept"
)

// clientAddress returns the address of a client: behind a trusted proxy, the last that X-Forwarded-For has, which the proxy
// has appended. Clients of a unix socket have the zero address, all of them.
func (s *Server) clientAddress(c *fiber.Ctx) netip.Addr {
	return s.addressOf(c.Context().RemoteAddr(), forwarded(c))
}

// forwarded returns the last line of X-Forwarded-For in a request, or "".
func forwarded(c *fiber.Ctx) string {
	lines := c.Request().Header.PeekAll(fiber.HeaderXForwardedFor)
	if len(lines) == 0 {
		return ""
	}
	return string(lines[len(lines)-1])
}

// addressOf is clientAddress of a connection from remote and a list of addresses, of which the proxy has appended the last.
func (s *Server) addressOf(remote net.Addr, forwarded string) netip.Addr {
	if a := s.limit.Client(remote); a.IsValid() || isLocal(remote) {
		return a
	}
	last := strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
	a, err := netip.ParseAddr(strings.Trim(last, "[]"))
	if err != nil {
		var with netip.AddrPort
		if with, err = netip.ParseAddrPort(last); err != nil {
			with, _ = netip.ParseAddrPort(remote.String())
		}
		a = with.Addr()
	}
	if a = a.Unmap().WithZone(""); a.Is6() { // as connections are bounded
		p, _ := a.Prefix(64)
		a = p.Addr()
	}
	return a
}

// isLocal reports whether an address is that of a client of a unix socket. None is a proxy: what it says of addresses is not believed.
func isLocal(remote net.Addr) bool { return remote.Network() == "unix" }

// isProxy reports whether an address is one of trusted_proxies: what it says of its clients is believed.
func (s *Server) isProxy(remote net.Addr) bool {
	return !isLocal(remote) && !s.limit.Client(remote).IsValid()
}

// addressText returns the address of a client as people read it.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "unix"
	}
	return a.String()
}

// onConnection is what is known of a connection without credentials.
type onConnection struct {
	account *access.Account
	proxy   bool // it may be that of a proxy, whose requests name other addresses
}

// accountAt returns the account of the clients without credentials at a connection, or at the address that a proxy has named. The connection
// remembers its own, so that a request needs no lookup.
func (s *Server) accountAt(c net.Conn, forwarded string) *access.Account {
	if c == nil {
		return s.accounts.OfAddress(netip.Addr{})
	}
	kept := accept.ValueOf(c)
	if kept != nil {
		if k, _ := kept.Load().(*onConnection); k != nil && k.account.Live() && (forwarded == "" || !k.proxy) {
			return k.account
		}
	}
	remote := c.RemoteAddr()
	a := s.accounts.OfAddress(s.addressOf(remote, forwarded))
	if proxy := s.isProxy(remote); kept != nil && (forwarded == "" || !proxy) {
		kept.Store(&onConnection{a, proxy})
	}
	return a
}
