package container

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/moby/client"

	"millrace/stream"
)

// place is where a container is: an address in its network, and the process of the container.
type place struct {
	ip   netip.Addr
	bits int // length of the network's prefix; 0 = not known
	pid  int
}

// find returns the place of the started container.
func (s *server) find(ctx context.Context) (place, error) {
	about, err := s.engine.client.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
	if err != nil {
		return place{}, unavailable(err)
	}
	var p place
	if state := about.Container.State; state != nil {
		p.pid = state.Pid
	}
	if set := about.Container.NetworkSettings; set != nil {
		for _, n := range set.Networks {
			if n == nil {
				continue
			}
			if p.ip, p.bits = n.IPAddress, n.IPPrefixLen; !p.ip.IsValid() {
				p.ip, p.bits = n.GlobalIPv6Address, n.GlobalIPv6PrefixLen
			}
		}
	}
	if !p.ip.IsValid() {
		return p, stream.Errorf(stream.Unavailable, "container.serve",
			"the container engine gives the container no address")
	}
	return p, nil
}

// dialTo returns a function that connects to the container at p, and to nothing else. Without an address of this
// machine in the container's network, a connection to p.ip would leave through the default route and reach another
// machine: the function then connects from the network namespace of the container.
func dialTo(p place) (dial func(ctx context.Context, network, to string) (net.Conn, error), end func(), err error) {
	connect, end := p.dialJoined, func() {}
	if !p.joined() {
		if connect, end, err = inside(p); err != nil {
			return nil, nil, stream.Errorf(stream.Unavailable, "container.serve",
				"this machine has no address in the network of the container (%s), and cannot enter the network: use "+
					"an engine on this machine, with netavark for Podman, or start the server as root: %w", p.ip, err)
		}
	}
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		a, err := netip.ParseAddrPort(to)
		if err != nil || a.Addr() != p.ip {
			return nil, stream.Errorf(stream.PermissionDenied, "container.serve", "%.100q is not the container", to)
		}
		return connect(ctx, network, to)
	}, end, nil
}

// dialJoined connects from this machine, as long as the machine is in the network of the container.
func (p place) dialJoined(ctx context.Context, network, to string) (net.Conn, error) {
	if !p.joined() {
		return nil, fmt.Errorf("this machine has no address in the network of the container (%s) any more", p.ip)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// joined reports whether an interface of the thread's network has an address in the network of the container. A larger
// network that contains the container's address is another network.
func (p place) joined() bool {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		n, is := a.(*net.IPNet)
		if !is || !n.Contains(p.ip.AsSlice()) {
			continue
		}
		if ones, _ := n.Mask.Size(); p.bits == 0 || ones == p.bits {
			return true
		}
	}
	return false
}
