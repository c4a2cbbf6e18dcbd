package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// RetryAfter is how long the server asked to wait before the request or the
// connection that failed with err is tried again; 0 when it did not say.
func RetryAfter(err error) time.Duration {
	var e *retryError
	if errors.As(err, &e) {
		return e.after
	}
	return 0
}

// retryError is an error with the time that RetryAfter tells.
type retryError struct {
	err   *stream.Error
	after time.Duration
}

// Error implements error.
func (e *retryError) Error() string { return e.err.Error() }

// Unwrap returns the coded error.
func (e *retryError) Unwrap() error { return e.err }

func retryable(e *stream.Error, after time.Duration) error {
	if after <= 0 {
		return e
	}
	return &retryError{e, after}
}

// errorOf is an error as the server words it.
func errorOf(m *wire.ErrorMessage) error {
	return retryable(&stream.Error{Code: stream.Code(m.Code), Msg: m.Message}, time.Duration(m.RetryAfterMS)*time.Millisecond)
}

// replyError reads a reply of HTTP that is an error.
func replyError(status int, header http.Header, body []byte) error {
	seconds, _ := strconv.Atoi(header.Get("Retry-After")) // a date is not what the server sends
	after := time.Duration(seconds) * time.Second
	var m struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	if json.Unmarshal(body, &m) == nil && m.Error != "" {
		if m.Code == "" {
			m.Code = string(codeOfStatus(status))
		}
		return retryable(&stream.Error{Code: stream.Code(m.Code), Msg: m.Error}, after)
	}
	return retryable(stream.Errorf(codeOfStatus(status), "", "the server answered %d %s", status, http.StatusText(status)), after)
}

// codeOfStatus is the code of an answer that does not come from a Millrace server
// but, say, from a proxy.
func codeOfStatus(status int) stream.Code {
	switch status {
	case http.StatusUnauthorized:
		return stream.Unauthenticated
	case http.StatusForbidden:
		return stream.PermissionDenied
	case http.StatusNotFound:
		return stream.NotFound
	case http.StatusConflict:
		return stream.Conflict
	case http.StatusRequestEntityTooLarge:
		return stream.TooLarge
	case http.StatusTooManyRequests:
		return stream.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return stream.Unavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return stream.Timeout
	}
	if status/100 == 4 {
		return stream.InvalidArgument
	}
	return stream.Internal
}

// unreachable classifies what kept a request from being answered.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("client: %w", cause)
	}
	var u *url.Error // repeats the method and the address
	if errors.As(err, &u) {
		err = u.Err
	}
	return stream.Errorf(stream.Unavailable, "", "the server at %s cannot be reached: %w", c.base.Host, err)
}

// badReply is the error for an answer that cannot be read.
func badReply(err error) error {
	if err == nil {
		return nil
	}
	return stream.Errorf(stream.Internal, "", "the server's answer is not understood: %w", err)
}
