package video

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// specialPurpose lists the address blocks that are not public (IANA special-purpose registries), beyond the blocks
// covered by methods of netip.Addr.
var specialPurpose = func() (list []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8",        // this network
		"100.64.0.0/10",    // carrier-grade NAT
		"192.0.0.0/24",     // protocol assignments
		"192.0.2.0/24",     // documentation
		"198.18.0.0/15",    // benchmarking
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"240.0.0.0/4",      // reserved, and broadcast
		"100::/64",         // discard
		"2001::/32",        // Teredo
		"2001:db8::/32",    // documentation
		"3fff::/20",        // documentation
		"5f00::/16",        // segment routing
		"fec0::/10",        // old site-local
		"64:ff9b:1::/48",   // local translation
		"168.63.129.16/32", // Azure: the host of the virtual machine, in an otherwise public block
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// IsPrivateAddr reports whether an address is not public: loopback, link-local, RFC 1918, unique local, unspecified,
// carrier-grade NAT, multicast, reserved, the host of a virtual machine, or an IPv6 form of such an IPv4 address.
func IsPrivateAddr(a netip.Addr) bool {
	a = embedded(a)
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() ||
		a.IsMulticast() {
		return true
	}
	for _, p := range specialPurpose {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// embedded returns the IPv4 address in an IPv6 address; other addresses unchanged, without a zone.
func embedded(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if !a.Is6() || a.IsUnspecified() || a.IsLoopback() {
		return a
	}
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a): // NAT64
		return netip.AddrFrom4([4]byte(b[12:16]))
	case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
		return netip.AddrFrom4([4]byte(b[2:6]))
	case binary.BigEndian.Uint64(b[:8]) == 0 && binary.BigEndian.Uint32(b[8:12])&^0xffff0000 == 0:
		// old "compatible" form, and the translated form
		return netip.AddrFrom4([4]byte(b[12:16]))
	}
	return a
}

// interfaceAddrs returns the addresses of this machine. Tests replace the function.
var interfaceAddrs = net.InterfaceAddrs

// CheckPublic returns an error with the reason why an address is not that of another machine on the public network:
// the address is private ([IsPrivateAddr]); the address belongs to this machine, and no outside firewall sees a
// machine's connections to itself; or the addresses of this machine cannot be read. CheckPublic reads the machine's
// changeable addresses for each public address, in far less time than a connection takes. CheckPublic does not know
// addresses that a NAT elsewhere translates to this machine. Safe for concurrent use.
func CheckPublic(a netip.Addr) error {
	if IsPrivateAddr(a) {
		return fmt.Errorf("%v is a private address", a)
	}
	own, err := interfaceAddrs()
	if err != nil {
		return fmt.Errorf("%v may be an address of this machine, which cannot be read (under systemd, "+
			"RestrictAddressFamilies needs AF_NETLINK): %w", a, err)
	}
	for _, o := range own {
		if n, ok := o.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == embedded(a) {
				return fmt.Errorf("%v is an address of this machine", a)
			}
		}
	}
	return nil
}
