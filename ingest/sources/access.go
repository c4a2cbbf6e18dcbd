package sources

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"millrace/internal/video"
	"millrace/stream"
)

// Check says by the form of an address whether a request may name it: those of
// schemes that a kind allows requests to name. Files, devices, folders and commands
// come from the configuration only. Errors are *stream.Error about field and never
// repeat the address.
func Check(field, address string) error {
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
	return stream.Errorf(stream.PermissionDenied, field, "%s: sources come from the server's configuration only; a request may name %s", scheme, list(Kind.request))
}

// Public allows what is not a private address: video.Options.Allow for what a
// request named.
func Public(a netip.Addr) error {
	if video.IsPrivateAddr(a) {
		return fmt.Errorf("%v is a private address: sources.allow_private allows those", a)
	}
	return nil
}
