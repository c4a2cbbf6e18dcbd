// Package outbound opens connections under the rule of addresses: the hosts that an operator named may have any
// address, other hosts, to which a named host leads, must have public addresses. The package must not know protocols
// above TCP, except for the proxies of HTTP.
package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/video"
)

// Rule has the named hosts. A Rule is safe for concurrent use.
type Rule struct {
	Named   []string      // HOST:PORT
	Private bool          // private addresses are allowed everywhere
	Hint    string        // ends errors of private addresses: how they are allowed
	Idle    time.Duration // a connection that carries no byte for this time ends; 0 = never

	mu      sync.Mutex
	proxies map[string]bool // HOST:PORT
}

// IsNamed reports whether the operator named the host. Only such a host gets credentials.
func (r *Rule) IsNamed(host string) bool {
	return host != "" && slices.ContainsFunc(r.Named, func(n string) bool { return strings.EqualFold(n, host) })
}

// Trusts reports whether the host may have any address.
func (r *Rule) Trusts(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Private || r.IsNamed(host) || r.proxies[host]
}

// Proxy is a function for http.Transport.Proxy: the proxy of the environment, for trusted hosts.
func (r *Rule) Proxy(req *http.Request) (*url.URL, error) {
	if !r.Trusts(HostPort(req.URL)) {
		return nil, nil // a proxy would lead to private addresses
	}
	u, err := http.ProxyFromEnvironment(req)
	if u != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.proxies == nil {
			r.proxies = map[string]bool{}
		}
		r.proxies[HostPort(u)] = true
	}
	return u, err
}

// privateError is the refusal of a private address.
type privateError struct {
	err  error
	hint string
}

func (e privateError) Error() string { return e.err.Error() + ", " + e.hint }

// IsRefusal reports whether an error is the refusal of a private address.
func IsRefusal(err error) bool { return errors.As(err, new(privateError)) }

// Dial opens a connection to HOST:PORT.
func (r *Rule) Dial(ctx context.Context, kind, address string) (net.Conn, error) {
	var allow func(netip.Addr) error
	if !r.Trusts(address) {
		allow = func(at netip.Addr) error {
			if err := video.CheckPublic(at); err != nil {
				return privateError{err, r.Hint}
			}
			return nil
		}
	}
	c, err := Dialer(30*time.Second, allow).DialContext(ctx, kind, address)
	if err != nil || r.Idle <= 0 {
		return c, err
	}
	return idleConn{c, r.Idle}, nil
}

// Dialer returns a dialer that refuses the addresses for which allow returns an error, after each look-up of a name;
// nil = no address is refused.
func Dialer(timeout time.Duration, allow func(netip.Addr) error) *net.Dialer {
	d := &net.Dialer{Timeout: timeout}
	if allow != nil {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return allow(at.Addr())
		}
	}
	return d
}

// idleConn moves the deadlines of a connection with each call.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c idleConn) Read(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.idle))
	return c.Conn.Read(b)
}

func (c idleConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.idle))
	return c.Conn.Write(b)
}

// HostPort returns the host of u with its port.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80", "ssh": "22"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
