package access

import (
	"net"
	"net/netip"
	"strings"

	"millrace/internal/accept"
)

// Address returns the address of the client of a connection from remote. Behind a trusted proxy, the client's address
// is the last address in forwarded, a line of X-Forwarded-For, because the proxy has appended this address. All
// clients of a unix socket have the zero address.
func (x *Access) Address(remote net.Addr, forwarded string) netip.Addr {
	if a := x.limit.Client(remote); a.IsValid() || isLocal(remote) {
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

// isLocal reports whether an address is the address of a unix socket. A client of a unix socket is never a proxy.
func isLocal(remote net.Addr) bool { return remote.Network() == "unix" }

// IsProxy reports whether an address is in trusted_proxies. The server believes the proxy's X-Forwarded-For.
func (x *Access) IsProxy(remote net.Addr) bool {
	return !isLocal(remote) && !x.limit.Client(remote).IsValid()
}

// AddressText returns the text of a client's address for logs.
func AddressText(a netip.Addr) string {
	if !a.IsValid() {
		return "unix"
	}
	return a.String()
}

// onConnection is the account of a connection without credentials.
type onConnection struct {
	account *Account
	proxy   bool // the connection may come from a proxy, and its requests name other addresses
}

// AccountAt returns the account of clients without credentials at a connection, or at the address in forwarded behind
// a trusted proxy. The connection keeps its account, so that a request needs no lookup.
func (x *Access) AccountAt(c net.Conn, forwarded string) *Account {
	if c == nil || x.limit == nil {
		return x.accounts.OfAddress(netip.Addr{})
	}
	kept := accept.ValueOf(c)
	if kept != nil {
		if k, _ := kept.Load().(*onConnection); k != nil && k.account.Live() && (forwarded == "" || !k.proxy) {
			return k.account
		}
	}
	remote := c.RemoteAddr()
	a := x.accounts.OfAddress(x.Address(remote, forwarded))
	if proxy := x.IsProxy(remote); kept != nil && (forwarded == "" || !proxy) {
		kept.Store(&onConnection{a, proxy})
	}
	return a
}
