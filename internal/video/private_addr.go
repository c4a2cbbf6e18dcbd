package video

import (
	"encoding/binary"
	"net/netip"
)

// specialPurpose lists the address blocks that are not public (IANA special-purpose registries), beyond those that
// netip.Addr has methods for.
var specialPurpose = func() (list []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8",       // this network
		"100.64.0.0/10",   // carrier-grade NAT
		"192.0.0.0/24",    // protocol assignments
		"192.0.2.0/24",    // documentation
		"198.18.0.0/15",   // benchmarking
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"240.0.0.0/4",     // reserved, and broadcast
		"100::/64",        // discard
		"2001::/32",       // Teredo
		"2001:db8::/32",   // documentation
		"3fff::/20",       // documentation
		"5f00::/16",       // segment routing
		"fec0::/10",       // old site-local
		"64:ff9b:1::/48",  // local translation
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// IsPrivateAddr reports whether an address is not public: loopback, link-local, RFC 1918, unique
// local, unspecified, carrier-grade NAT, multicast, reserved, or an IPv6 form that embeds such an IPv4 address.
func IsPrivateAddr(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return true
	}
	for _, p := range specialPurpose {
		if p.Contains(a) {
			return true
		}
	}
	if a.Is6() {
		b := a.As16()
		switch {
		case netip.MustParsePrefix("64:ff9b::/96").Contains(a): // NAT64
			return IsPrivateAddr(netip.AddrFrom4([4]byte(b[12:16])))
		case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
			return IsPrivateAddr(netip.AddrFrom4([4]byte(b[2:6])))
		case binary.BigEndian.Uint64(b[:8]) == 0 && binary.BigEndian.Uint32(b[8:12])&^0xffff0000 == 0: // old "compatible" form, and the translated one
			return IsPrivateAddr(netip.AddrFrom4([4]byte(b[12:16])))
		}
	}
	return false
}
