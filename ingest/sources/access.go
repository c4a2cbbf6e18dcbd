package sources

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"millrace/internal/video"
	"millrace/stream"
)

// Check checks by the form of an address whether a request may name the address: the scheme must be allowed for
// requests. Only the configuration may name files, devices, folders and commands. Errors are *stream.Error about
// field and never contain the address.
func Check(field, address string) error {
	if video.Redacted(address) {
		return stream.Errorf(stream.InvalidArgument, field, "has *** in the place of a user name, password or "+
			"token, which the server does not show: write the address with them")
	}
	scheme, k, err := Classify(address)
	if err == nil && slices.Contains(k.Request, scheme) {
		err = k.New().Validate(address, false)
		if err == nil {
			return nil
		}
		var own *stream.Error
		if errors.As(err, &own) {
			return stream.Errorf(own.Code, field, "%s", own.Msg)
		}
	}
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, field, "%w", err)
	}
	return stream.Errorf(stream.PermissionDenied, field, "%s: sources come from the server's configuration only "+
		"(its section streams); a request may name %s. `millrace stream` sends a file", scheme, RequestSchemes())
}

// allowPrivate says how private addresses are allowed.
const allowPrivate = "sources.allow_private (--sources-allow-private) allows private addresses; a change of it " +
	"needs a restart of the server"

// Public allows public addresses of other machines: Public is video.Options.Allow for sources named by a request.
func Public(a netip.Addr) error {
	if err := video.CheckPublic(a); err != nil {
		return fmt.Errorf("%w: %s", err, allowPrivate)
	}
	return nil
}
