package grpc

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"millrace/stream"
	"millrace/stream/coded"
)

// statusCodes is the only translation of codes to gRPC codes.
var statusCodes = map[stream.Code]codes.Code{
	stream.InvalidArgument:  codes.InvalidArgument,
	stream.TooLarge:         codes.InvalidArgument,
	stream.Unsupported:      codes.Unimplemented,
	stream.NotFound:         codes.NotFound,
	stream.Unauthenticated:  codes.Unauthenticated,
	stream.PermissionDenied: codes.PermissionDenied,
	stream.FlowControl:      codes.ResourceExhausted,
	stream.Overloaded:       codes.Unavailable,
	stream.Unavailable:      codes.Unavailable,
	stream.Unloaded:         codes.Unavailable,
	stream.Draining:         codes.Unavailable,
	stream.Timeout:          codes.DeadlineExceeded,
	stream.Canceled:         codes.Canceled,
	stream.Conflict:         codes.FailedPrecondition,
	stream.Internal:         codes.Internal,
}

// statusError translates an error to a gRPC status, with the time for a retry if a retry may help.
func statusError(err error) error {
	err, _ = coded.ClientError(err)
	code, known := statusCodes[stream.CodeOf(err)]
	if !known {
		code = codes.Internal
	}
	st := status.New(code, err.Error())
	if wait := coded.RetryAfter(err); wait > 0 {
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			st = with
		}
	}
	return st.Err()
}

// publicError returns the part of err for the client of a call, and logs errors hidden from the client.
func (s *service) publicError(err error) error {
	told, log := coded.ClientError(err)
	if log {
		s.Log.Error("a gRPC call failed", "error", err)
	}
	return told
}

// statusError returns the status of err, and logs errors hidden from the client.
func (s *service) statusError(err error) error { return statusError(s.publicError(err)) }
