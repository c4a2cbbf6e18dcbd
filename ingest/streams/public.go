package streams

import (
	"context"
	"net"
	"net/url"
	"time"

	"millrace/ingest/sources"
	"millrace/stream"
)

// lookupTime is the longest look-up of a host's addresses for a request.
const lookupTime = 2 * time.Second

// publicHost returns an error if a request names an address that will be refused when it is
// opened: that of a host all of whose addresses are private now. A name without an address now
// may have one later. Each connection is checked again.
func publicHost(ctx context.Context, field, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil // whoever opens it says why it cannot
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil
	}
	var why error
	for _, ip := range all {
		if why = sources.Public(ip.Unmap()); why == nil {
			return nil
		}
	}
	if why != nil {
		return stream.Errorf(stream.PermissionDenied, field, "%w", why)
	}
	return nil
}
