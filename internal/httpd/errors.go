package httpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// Error is what a handler returns to have it answered as
// {"error": MSG, "code": CODE} with a status.
type Error struct {
	Status     int
	Code       string // classifies it for programs; see Coded
	Msg        string
	RetryAfter int // seconds, 0 = the header is left out
}

// Error returns the message.
func (e *Error) Error() string { return e.Msg }

// Errorf makes an Error.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// StatusClientGone is the status for a request whose client left.
const StatusClientGone = 499

// statuses is the one place where codes become statuses.
var statuses = map[string]struct {
	status     int
	retryAfter int
}{
	"invalid_argument":  {400, 0},
	"unsupported":       {400, 0},
	"unauthenticated":   {401, 0},
	"permission_denied": {403, 0},
	"not_found":         {404, 0},
	"conflict":          {409, 0},
	"too_large":         {413, 0},
	"flow_control":      {429, 1},
	"overloaded":        {429, 1},
	"canceled":          {StatusClientGone, 0},
	"internal":          {500, 0},
	"unavailable":       {503, 1},
	"unloaded":          {503, 0},
	"draining":          {503, 1},
	"timeout":           {504, 1},
}

// Coded makes an Error whose status follows from code: invalid_argument and
// unsupported 400, unauthenticated 401, permission_denied 403, not_found 404,
// conflict 409, too_large 413, flow_control and overloaded 429, canceled 499,
// unavailable, unloaded and draining 503, timeout 504, and 500 for internal and
// every other. Those after which the same request may succeed say Retry-After.
func Coded(code, msg string) *Error {
	s, ok := statuses[code]
	if !ok {
		s.status = fasthttp.StatusInternalServerError
	}
	return &Error{Status: s.status, Code: code, Msg: msg, RetryAfter: s.retryAfter}
}

// answerError is Fiber's error handler.
func (s *Server) answerError(c *fiber.Ctx, err error) error {
	var own *Error
	var framework *fiber.Error
	switch {
	case errors.As(err, &own):
	case errors.As(err, &framework):
		own = fromFiber(c, framework)
	default:
		s.cfg.Log.Error("a handler failed", "method", c.Method(), "path", c.Path(), "error", err)
		own = Errorf(fasthttp.StatusInternalServerError, "internal", "a fault of the server: its log has the details")
	}
	write(c.Context(), own)
	return nil
}

func fromFiber(c *fiber.Ctx, err *fiber.Error) *Error {
	switch err.Code {
	case fiber.StatusNotFound:
		return Errorf(err.Code, "not_found", "there is nothing at %.256q", c.Path())
	case fiber.StatusMethodNotAllowed:
		return Errorf(err.Code, "unsupported", "%s is not served at %.256q: use %s", c.Method(), c.Path(), c.Response().Header.Peek("Allow"))
	case fiber.StatusRequestTimeout:
		return Errorf(err.Code, "timeout", "the request did not arrive in time")
	case fiber.StatusRequestHeaderFieldsTooLarge:
		return Errorf(err.Code, "too_large", "the request line and header are larger than %d bytes", readBuffer)
	case fiber.StatusRequestEntityTooLarge:
		return Errorf(err.Code, "too_large", "%s", err.Message)
	}
	code := "invalid_argument"
	if err.Code >= 500 {
		code = "internal"
	}
	return Errorf(err.Code, code, "%s", err.Message)
}

// write makes e the reply.
func write(c *fasthttp.RequestCtx, e *Error) {
	body, err := json.Marshal(struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{e.Msg, e.Code})
	if err != nil {
		body = []byte(`{"error":"a fault of the server","code":"internal"}`)
	}
	if e.RetryAfter > 0 {
		c.Response.Header.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	c.Response.SetStatusCode(e.Status)
	c.Response.Header.SetContentType("application/json")
	c.Response.SetBody(body)
}
