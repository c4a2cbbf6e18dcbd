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

// publicHost returns an error if all present addresses of a request's host are private, so that opening would fail. A
// name without an address passes: the name may get an address later, and each connection is checked again.
func publicHost(ctx context.Context, field, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil // opening reports this error
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
