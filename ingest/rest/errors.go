package rest

import (
	"errors"

	"millrace/internal/buf"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
)

// reply is err as it is answered. The status of a code is httpd.Coded's.
func (a *Adapter) reply(err error) error {
	var (
		done    *httpd.Error
		message *oip.Error
		coded   *stream.Error
	)
	switch {
	case errors.As(err, &done):
		return done
	case errors.Is(err, buf.ErrBudget), errors.Is(err, oip.ErrMemory):
		return httpd.Coded(string(stream.Overloaded), "memory.budget: no memory is left for the request: try later, or raise the setting")
	case errors.As(err, &message):
		return httpd.Coded(string(stream.InvalidArgument), message.Error())
	case errors.As(err, &coded):
		return httpd.Coded(string(coded.Code), err.Error())
	}
	code := stream.CodeOf(err)
	if code != stream.Internal {
		return httpd.Coded(string(code), err.Error())
	}
	a.opts.Log.Error("a request failed", "error", err)
	return httpd.Coded(string(code), "a fault of the server: its log has the details")
}
