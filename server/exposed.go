package server

import (
	"context"
	"net"
	"net/netip"
	"time"

	"millrace/ingest/access"
	"millrace/internal/accept"
	"millrace/internal/secret"
	"millrace/stream"
)

// lookupTime is how long the lookup of a host's name may take.
const lookupTime = 5 * time.Second

// Exposed returns an error for each listener of a configuration that other machines can reach without authentication,
// unless the setting insecure allows this, and for each reachable listener with a short api_key. The commands that
// start a server call Exposed; New does not.
func Exposed(ctx context.Context, c Config) (errs []error) {
	open, short := !authenticates(&c), shortKey(&c)
	if c.Insecure || !open && !short {
		return nil
	}
	for _, l := range Listeners(c) {
		if !reachable(ctx, l.Addr) {
			continue
		}
		if !open {
			return []error{errShort(l.Setting, l.Addr)}
		}
		errs = append(errs, errExposed(l.Setting, l.Addr))
	}
	return errs
}

// shortKey reports whether the api_key of a configuration is short. New reports an unreadable api_key.
func shortKey(c *Config) bool {
	key, err := secret.Read(c.APIKey)
	return err == nil && access.ShortKey(key)
}

func errShort(setting, addr string) error {
	return stream.Errorf(stream.InvalidArgument, "api_key", "has fewer than %d characters, and %s, %s, can be "+
		"reached from other machines, which could guess the key: set a random key (openssl rand -hex 16), or "+
		"auth.keys instead (millrace keys add keys.yaml NAME), or give --insecure to allow a short key",
		access.MinKey, setting, addr)
}

// authenticates reports whether clients of a server with a configuration need credentials.
func authenticates(c *Config) bool {
	return c.APIKey != "" || c.Auth.Keys != "" || c.Auth.Users != "" || c.Auth.Module != "" ||
		c.Auth.OIDC.Issuer != "" || c.TLS.ClientCA != ""
}

func errExposed(setting, addr string) error {
	return stream.Errorf(stream.InvalidArgument, setting, "%s can be reached from other machines, and nobody has to "+
		"authenticate: set auth.keys (millrace keys add keys.yaml NAME) or auth.users (millrace users add "+
		"users.yaml NAME), or give --insecure to let everybody in", addr)
}

// reachable reports whether other machines can reach a listener at addr, HOST:PORT or unix:PATH. A name without an
// address counts as unreachable, since no listener can bind to the name.
func reachable(ctx context.Context, addr string) bool {
	if _, local := accept.SocketPath(addr); local {
		return false
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	if host == "" {
		return true // all addresses
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.Unmap().IsLoopback()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return true
		}
	}
	return false
}
