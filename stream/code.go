package stream

import "millrace/stream/coded"

// Code and Error are the types of package coded, shared with packages below this package.
type (
	// Code classifies every error visible to a client.
	Code = coded.Code
	// Error is the error type with a Code.
	Error = coded.Error
)

// The codes; package coded explains each code.
const (
	InvalidArgument  = coded.InvalidArgument
	Unsupported      = coded.Unsupported
	NotFound         = coded.NotFound
	TooLarge         = coded.TooLarge
	Unauthenticated  = coded.Unauthenticated
	PermissionDenied = coded.PermissionDenied
	FlowControl      = coded.FlowControl
	Overloaded       = coded.Overloaded
	Unavailable      = coded.Unavailable
	Unloaded         = coded.Unloaded
	Timeout          = coded.Timeout
	Canceled         = coded.Canceled
	Draining         = coded.Draining
	Conflict         = coded.Conflict
	Internal         = coded.Internal
)

// Errorf makes a coded error. A %w verb keeps the cause reachable.
func Errorf(code Code, field, format string, args ...any) *Error {
	return coded.Errorf(code, field, format, args...)
}

// CodeOf returns the code of the first Error in the chain of err, Timeout and Canceled for the context's errors,
// Internal otherwise.
func CodeOf(err error) Code { return coded.CodeOf(err) }
