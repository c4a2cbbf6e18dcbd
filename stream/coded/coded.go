// Package coded has the error type of the whole program: a code for programs, the field at fault, and a message for
// people. The package owns the set of codes. Package coded imports no other package of the module, so that every
// package can return its errors, and must not know how a protocol encodes a code.
package coded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code classifies every error visible to a client. Adapters only translate a Code to an HTTP status, a gRPC code or a
// close code. The wire format contains the text of the code.
type Code string

// The codes.
const (
	InvalidArgument  Code = "invalid_argument"  // the request is wrong as sent
	Unsupported      Code = "unsupported"       // well-formed, but not something this model or build can do
	NotFound         Code = "not_found"         // unknown model, version, stream or route
	TooLarge         Code = "too_large"         // a message, picture or shape is over a limit
	Unauthenticated  Code = "unauthenticated"   // no valid credentials
	PermissionDenied Code = "permission_denied" // known, but not allowed
	FlowControl      Code = "flow_control"      // more frames than the window allows
	Overloaded       Code = "overloaded"        // a bound of the server is reached; try later
	Unavailable      Code = "unavailable"       // no worker can serve the request now
	Unloaded         Code = "unloaded"          // the model was unloaded while the frame was waiting
	Timeout          Code = "timeout"           // the model or a source exceeded its time limit
	Canceled         Code = "canceled"          // the caller no longer waits
	Draining         Code = "draining"          // the server is shutting down
	Conflict         Code = "conflict"          // contradicts the present state
	Internal         Code = "internal"          // a fault of the server or of a model's code
)

// Codes lists every Code, so that a test can check each protocol's table for completeness.
var Codes = []Code{
	InvalidArgument, Unsupported, NotFound, TooLarge, Unauthenticated, PermissionDenied, FlowControl, Overloaded,
	Unavailable, Unloaded, Timeout, Canceled, Draining, Conflict, Internal,
}

// RetryAfter returns the delay after which the same request may succeed; 0 when waiting alone changes nothing.
func (c Code) RetryAfter() time.Duration {
	switch c {
	case FlowControl, Overloaded, Unavailable, Timeout, Draining:
		return time.Second
	}
	return 0
}

// Retryable reports whether the same request may succeed later, unchanged.
func (c Code) Retryable() bool { return c.RetryAfter() > 0 }

// Error is the error with a Code. Field names the part of the input or the setting at fault, as a path
// ("inputs[0].shape", "max_age_ms").
type Error struct {
	Code  Code
	Field string
	Msg   string
	Err   error // the cause, or nil

	After time.Duration // when to try again; 0 = as the code says (Code.RetryAfter)
}

// Error returns "field: message". The message includes the text of the cause.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return e.Field + ": " + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes a coded error. A %w verb keeps the cause reachable.
func Errorf(code Code, field, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Field: field, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first Error in the chain of err, Timeout and Canceled for the context's errors,
// Internal otherwise.
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

// RetryAfter returns the delay after which the same request may succeed, taken from the error or else from its code.
func RetryAfter(err error) time.Duration {
	if e := (*Error)(nil); errors.As(err, &e) && e.After > 0 {
		return e.After
	}
	return CodeOf(err).RetryAfter()
}

// Fault is the client's error in place of an error without a code.
var Fault = Errorf(Internal, "", "a fault of the server: its log has the details")

// ClientError returns the error for the client. The text of an error without a code may be meant for the log only: the
// client error is then Fault, and log is true.
func ClientError(err error) (public error, log bool) {
	if e := (*Error)(nil); CodeOf(err) == Internal && !errors.As(err, &e) {
		return Fault, true
	}
	return err, false
}

// PrefixField returns err with path in front of the error's field. path is the part of the input in which the caller
// found the fault. An error without a code is returned unchanged.
func PrefixField(path string, err error) error {
	return RenameFunc(err, func(field string) string {
		if field == "" {
			return path
		}
		if field[0] == '[' {
			return path + field
		}
		return path + "." + field
	})
}

// Rename returns err with the field renamed by names, a map from field names of the core to field names of a
// protocol. Fields missing in names keep their name.
func Rename(err error, names map[string]string) error {
	return RenameFunc(err, func(field string) string {
		if name, ok := names[field]; ok {
			return name
		}
		return field
	})
}

// RenameFunc returns a copy of the coded error in err with the field renamed by name, or err itself when the field
// stays the same. RenameFunc renames each of several joined errors.
func RenameFunc(err error, name func(string) string) error {
	if all, _ := Joined(err); all != nil {
		renamed := make([]error, len(all))
		for i, err := range all {
			renamed[i] = RenameFunc(err, name)
		}
		return errors.Join(renamed...)
	}
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	field := name(e.Field)
	if field == e.Field {
		return err
	}
	return &Error{Code: e.Code, Field: field, Msg: e.Msg, Err: err, After: e.After}
}

// Joined returns the errors joined by errors.Join in the chain of err, before any coded error, and the text put in
// front by the errors around the joined errors; nil when the chain has no joined errors.
func Joined(err error) (all []error, before string) {
	for at := err; at != nil; at = errors.Unwrap(at) {
		if _, is := at.(*Error); is {
			return nil, ""
		}
		if joined, is := at.(interface{ Unwrap() []error }); is {
			all = joined.Unwrap()
			text := at.Error()
			if text != errors.Join(all...).Error() { // fmt.Errorf with several errors, in a text of its own
				return nil, ""
			}
			before, _ = strings.CutSuffix(err.Error(), text)
			return all, before
		}
	}
	return nil, ""
}
