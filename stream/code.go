package stream

import (
	"context"
	"errors"
	"fmt"
)

// Code classifies every error that a client can see. Adapters translate it to
// an HTTP status, a gRPC code or a close code, and do nothing else with it. The
// text of a code is what appears on the wire.
type Code string

// The codes.
const (
	InvalidArgument  Code = "invalid_argument"  // the request is wrong as sent
	Unsupported      Code = "unsupported"       // well-formed, but not something this model or build can do
	NotFound         Code = "not_found"         // no such model, version, stream or route
	TooLarge         Code = "too_large"         // a message, picture or shape is over a limit
	Unauthenticated  Code = "unauthenticated"   // no valid credentials
	PermissionDenied Code = "permission_denied" // known, but not allowed
	FlowControl      Code = "flow_control"      // more frames than the window allows
	Overloaded       Code = "overloaded"        // a bound of the server is reached; try later
	Unavailable      Code = "unavailable"       // no worker can serve it now
	Unloaded         Code = "unloaded"          // the model was unloaded while the frame waited
	Timeout          Code = "timeout"           // the model or a source took longer than its limit
	Canceled         Code = "canceled"          // the caller went away
	Draining         Code = "draining"          // the server is shutting down
	Conflict         Code = "conflict"          // contradicts the present state
	Internal         Code = "internal"          // a fault of the server or of a model's code
)

// Error is the one coded error. Field names the part of the input or the
// setting that is at fault, as a path ("inputs[0].shape", "max_age_ms").
type Error struct {
	Code  Code
	Field string
	Msg   string
	Err   error // what caused it, if anything
}

// Error returns "field: message". The message holds what the cause says.
func (e *Error) Error() string {
	s := e.Msg
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes a coded error. A %w verb keeps the cause reachable.
func Errorf(code Code, field, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Field: field, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of err: that of the first Error in its chain, Timeout
// and Canceled for the context's errors, Internal otherwise.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Internal
}

// Retryable says whether the same request may succeed later, unchanged.
func (c Code) Retryable() bool {
	switch c {
	case FlowControl, Overloaded, Unavailable, Timeout, Draining:
		return true
	}
	return false
}
