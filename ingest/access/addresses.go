package access

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

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

// onConnection is what the server keeps of the clients of a connection. An onConnection does not change.
type onConnection struct {
	account *Account  // of clients without credentials, or nil
	proxy   bool      // the connection may come from a proxy, and its requests name other addresses
	key     string    // a key that was accepted, to find the key again without hashing; "" = none
	entry   *keyEntry // of the key; nil = the server's own key
}

// keptOn returns what the server keeps of the clients of a connection, or nil, and where; nil = nowhere.
func keptOn(c net.Conn) (*onConnection, *atomic.Value) {
	if c == nil {
		return nil, nil
	}
	place := accept.ValueOf(c)
	if place == nil {
		return nil, nil
	}
	kept, _ := place.Load().(*onConnection)
	return kept, place
}

// keepKey keeps an accepted key at its connection. With several keys on a connection, for example of a proxy, the first
// key stays, also after its removal from the file: the entry is then another, and the key is refused.
func keepKey(place *atomic.Value, kept *onConnection, text string, e *keyEntry) {
	now := onConnection{}
	if kept != nil {
		now = *kept
	}
	now.key, now.entry = strings.Clone(text), e
	place.Store(&now)
}

// AccountAt returns the account of clients without credentials at a connection, or at the address in forwarded behind
// a trusted proxy. The connection keeps its account, so that a request needs no lookup.
func (x *Access) AccountAt(c net.Conn, forwarded string) *Account {
	if c == nil || x.limit == nil {
		return x.accounts.OfAddress(netip.Addr{})
	}
	kept, place := keptOn(c)
	if kept != nil && kept.account.Live() && (forwarded == "" || !kept.proxy) {
		return kept.account
	}
	remote := c.RemoteAddr()
	a := x.accounts.OfAddress(x.Address(remote, forwarded))
	if proxy := x.IsProxy(remote); place != nil && (forwarded == "" || !proxy) {
		now := onConnection{}
		if kept != nil {
			now = *kept
		}
		now.account, now.proxy = a, proxy
		place.Store(&now)
	}
	return a
}
