package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/stream"
	"millrace/stream/coded"
)

// errUnreachable is in the chain of an error without an answer: the connection could not be made, or broke.
var errUnreachable = errors.New("the other server cannot be reached")

// upstreamError is an error answered by the upstream server, without an outcome.
type upstreamError struct {
	code stream.Code
	text string
}

func (e *upstreamError) Error() string { return e.text }

// clientError returns the error for clients of this server. Errors of a request are passed on unchanged; wrong
// credentials, a wrong name of the model and the state of the upstream server are not the client's fault.
func (l *link) clientError(err error) error {
	var up *upstreamError
	own := (*stream.Error)(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return stream.Errorf(stream.Timeout, "", "the server of model %s did not answer in time", l.name)
	case errors.Is(err, context.Canceled):
		return stream.Errorf(stream.Canceled, "", "the request was given up before the server of model %s answered",
			l.name)
	case errors.As(err, &up):
		switch up.code {
		case stream.Unauthenticated, stream.PermissionDenied:
			if l.dialer != nil {
				return stream.Errorf(stream.Unavailable, "", "the server of model %s wants credentials, and %s sends "+
					"none: %.512s", l.name, l.names.section, up.text)
			}
			return stream.Errorf(stream.Unavailable, "",
				"the server of model %s refuses this server's credentials (upstream.token): %.512s", l.name, up.text)
		case stream.NotFound:
			return stream.Errorf(stream.Unavailable, "",
				"the server of model %s does not have the model (%s.model): %.512s", l.name, l.names.section, up.text)
		}
		return stream.Errorf(up.code, "", "the server of model %s: %.1024s", l.name, up.text)
	case errors.As(err, &own):
		return err
	case errors.Is(err, errUnreachable):
		return stream.Errorf(stream.Unavailable, "", "the server of model %s cannot be reached", l.name)
	}
	return stream.Errorf(stream.Internal, "", "the server of model %s: %w", l.name, err)
}

// ofStatus is the code for an HTTP answer without a code in the body.
var ofStatus = map[int]stream.Code{
	http.StatusBadRequest: stream.InvalidArgument, http.StatusUnauthorized: stream.Unauthenticated,
	http.StatusForbidden: stream.PermissionDenied,
	http.StatusNotFound:  stream.NotFound, http.StatusConflict: stream.Conflict,
	http.StatusRequestEntityTooLarge: stream.TooLarge,
	http.StatusUnprocessableEntity:   stream.InvalidArgument, http.StatusTooManyRequests: stream.Overloaded,
	499:                       stream.Canceled,
	http.StatusNotImplemented: stream.Unsupported, http.StatusMethodNotAllowed: stream.Unsupported,
	http.StatusBadGateway: stream.Unavailable, http.StatusServiceUnavailable: stream.Unavailable,
	http.StatusGatewayTimeout: stream.Timeout,
	http.StatusRequestTimeout: stream.Timeout,
}

// httpError returns the error of an answer with the given status and the beginning of the body.
func httpError(code int, body []byte) error {
	var said struct {
		Error any         `json:"error"`
		Code  stream.Code `json:"code"`
	}
	e := &upstreamError{code: stream.Internal, text: http.StatusText(code)}
	if code/100 == 3 {
		e.text = "the server redirects to another address, which is not followed"
	}
	if c, known := ofStatus[code]; known {
		e.code = c
	}
	if json.Unmarshal(body, &said) == nil {
		if text, ok := said.Error.(string); ok && text != "" {
			e.text = text
		}
		if slices.Contains(coded.Codes, said.Code) && said.Code != "" {
			e.code = said.Code
		}
	}
	return e
}

// ofCode is the code of an error of gRPC.
var ofCode = map[codes.Code]stream.Code{
	codes.InvalidArgument: stream.InvalidArgument, codes.OutOfRange: stream.InvalidArgument,
	codes.Unimplemented: stream.Unsupported,
	codes.NotFound:      stream.NotFound, codes.Unauthenticated: stream.Unauthenticated,
	codes.PermissionDenied:  stream.PermissionDenied,
	codes.ResourceExhausted: stream.Overloaded, codes.Unavailable: stream.Unavailable,
	codes.DeadlineExceeded: stream.Timeout,
	codes.Canceled:         stream.Canceled, codes.FailedPrecondition: stream.Conflict, codes.Aborted: stream.Conflict,
	codes.AlreadyExists: stream.Conflict,
}

// grpcError returns the error of a failed call, perhaps the error of ctx.
func grpcError(ctx context.Context, err error) error {
	own := (*stream.Error)(nil)
	st, _ := status.FromError(err)
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	code, known := ofCode[st.Code()]
	if !known {
		code = stream.Internal
	}
	return &upstreamError{code, st.Message()}
}
