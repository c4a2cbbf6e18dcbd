package stream

import "millrace/stream/coded"

// Code and Error are those of package coded, which packages below this one use too.
type (
	// Code classifies every error that a client can see.
	Code = coded.Code
	// Error is the one coded error.
	Error = coded.Error
)

// The codes; package coded says what each of them means.
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

// CodeOf returns the code of err: that of the first Error in its chain, Timeout
// and Canceled for the context's errors, Internal otherwise.
func CodeOf(err error) Code { return coded.CodeOf(err) }
