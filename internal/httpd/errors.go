package httpd

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// StatusClientClosed is the status of a request whose client has disconnected.
const StatusClientClosed = 499

// statuses maps codes to HTTP statuses.
var statuses = map[coded.Code]int{
	coded.InvalidArgument:  fasthttp.StatusBadRequest,
	coded.Unsupported:      fasthttp.StatusBadRequest,
	coded.Unauthenticated:  fasthttp.StatusUnauthorized,
	coded.PermissionDenied: fasthttp.StatusForbidden,
	coded.NotFound:         fasthttp.StatusNotFound,
	coded.Conflict:         fasthttp.StatusConflict,
	coded.TooLarge:         fasthttp.StatusRequestEntityTooLarge,
	coded.FlowControl:      fasthttp.StatusTooManyRequests,
	coded.Overloaded:       fasthttp.StatusServiceUnavailable,
	coded.Canceled:         StatusClientClosed,
	coded.Internal:         fasthttp.StatusInternalServerError,
	coded.Unavailable:      fasthttp.StatusServiceUnavailable,
	coded.Unloaded:         fasthttp.StatusServiceUnavailable,
	coded.Draining:         fasthttp.StatusServiceUnavailable,
	coded.Timeout:          fasthttp.StatusGatewayTimeout,
}

// WithStatus returns err with an HTTP status instead of the status of err's code.
func WithStatus(status int, err error) error { return &statusError{status, err} }

type statusError struct {
	status int
	error
}

func (e *statusError) Unwrap() error { return e.error }

// answerError is Fiber's error handler: answerError writes the error of a handler as {"error": MESSAGE, "code":
// CODE}. The status comes from WithStatus, or from the code: invalid_argument and unsupported 400, unauthenticated
// 401, permission_denied 403, not_found 404, conflict 409, too_large 413, flow_control 429, canceled 499, internal
// 500, overloaded, unavailable, unloaded and draining 503, timeout 504. Replies with retryable errors have the header
// Retry-After. An error without a code is logged and its text is not sent.
func (s *Server) answerError(c *fiber.Ctx, err error) error {
	var framework *fiber.Error
	told, log := coded.ClientError(err)
	switch {
	case log && errors.As(err, &framework):
		told = fromFiber(c, framework)
	case log:
		// Copies: Fiber's strings lie in the connection's buffer, and a logger may keep a record.
		s.cfg.Log.Error("a handler failed", "method", strings.Clone(c.Method()), "path", strings.Clone(c.Path()),
			"error", err)
	}
	setError(&c.Context().Response, told)
	return nil
}

func fromFiber(c *fiber.Ctx, err *fiber.Error) error {
	code, msg := coded.InvalidArgument, err.Message
	switch err.Code {
	case fiber.StatusNotFound:
		return coded.Errorf(coded.NotFound, "", "there is nothing at %.256q: models are at /v2/models/NAME/infer, "+
			"and routes of programs below /apps/NAME/", c.Path())
	case fiber.StatusMethodNotAllowed:
		return WithStatus(err.Code, coded.Errorf(coded.Unsupported, "", "%s is not served at %.256q: use %s",
			c.Method(), c.Path(), c.Response().Header.Peek("Allow")))
	case fiber.StatusBadRequest: // the framework's texts have bytes of the request
		msg = "the request is not correct HTTP/1.1: its request line, header or body cannot be read"
	case fiber.StatusRequestTimeout:
		code, msg = coded.Timeout, "the request did not arrive in time"
	case fiber.StatusRequestHeaderFieldsTooLarge:
		code, msg = coded.TooLarge, "the request line and header are larger than "+strconv.Itoa(readBufferSize)+" bytes"
	case fiber.StatusRequestEntityTooLarge:
		code = coded.TooLarge
	default:
		if err.Code >= fiber.StatusInternalServerError {
			code = coded.Internal
		}
	}
	return WithStatus(err.Code, &coded.Error{Code: code, Msg: msg})
}

// StatusOf returns the status of the reply to a request that failed with err.
func StatusOf(err error) int {
	if own := (*statusError)(nil); errors.As(err, &own) {
		return own.status
	}
	if status, known := statuses[coded.CodeOf(err)]; known {
		return status
	}
	return fasthttp.StatusInternalServerError
}

// setError makes err the reply.
func setError(r *fasthttp.Response, err error) {
	if wait := coded.RetryAfter(err); wait > 0 {
		r.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	r.SetStatusCode(StatusOf(err))
	r.Header.SetContentType("application/json")
	r.SetBody(AppendError(nil, err))
}

// AppendError appends err as JSON: {"error": MESSAGE, "code": CODE}.
func AppendError(dst []byte, err error) []byte {
	body, fault := json.Marshal(struct {
		Error string     `json:"error"`
		Code  coded.Code `json:"code"`
	}{err.Error(), coded.CodeOf(err)})
	if fault != nil {
		body = []byte(`{"error":"a fault of the server","code":"internal"}`)
	}
	return append(dst, body...)
}
