package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// RetryAfter returns the wait requested by the server before a retry of the request or connection that failed with
// err; 0 = no request to wait.
func RetryAfter(err error) time.Duration {
	var e *retryError
	if errors.As(err, &e) {
		return e.after
	}
	return 0
}

// retryError is an error with the time for RetryAfter.
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

// errorOf returns the error of a message of the server.
func errorOf(m *wire.ErrorMessage) error {
	return retryable(&stream.Error{Code: stream.Code(m.Code), Msg: m.Message},
		time.Duration(m.RetryAfterMS)*time.Millisecond)
}

// ownText returns the server's own words: errors about unknown models have them in brackets, behind the words
// expected by clients of other servers.
func ownText(text string) string {
	if rest, ok := strings.CutPrefix(text, "Request for unknown model: "); ok {
		if _, own, ok := strings.Cut(rest, " is not found ("); ok {
			return strings.TrimSuffix(own, ")")
		}
	}
	return text
}

// replyError reads the error from an HTTP reply.
func replyError(status int, header http.Header, body []byte) error {
	seconds, _ := strconv.Atoi(header.Get("Retry-After")) // the server never sends a date
	after := time.Duration(seconds) * time.Second
	var m struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	if json.Unmarshal(body, &m) == nil && m.Error != "" {
		if m.Code == "" {
			m.Code = string(codeOfStatus(status))
		}
		return retryable(&stream.Error{Code: stream.Code(m.Code), Msg: ownText(m.Error)}, after)
	}
	text := fmt.Sprintf("the server answered %d %s", status, http.StatusText(status))
	if said := bytes.TrimSpace(body); len(said) > 0 && said[0] != '<' && said[0] != '{' {
		text = fmt.Sprintf("%s: %.200s", text, said)
	}
	return retryable(stream.Errorf(codeOfStatus(status), "", "%s", text), after)
}

// codeOfStatus returns the code for a reply without a code, for example from a proxy and not from a Millrace server.
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

// unreachable returns the error of a request without a reply.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("client: %w", cause)
	}
	var u *url.Error // repeats the method and the address
	if errors.As(err, &u) {
		err = u.Err
	}
	return stream.Errorf(stream.Unavailable, "", "the server at %s cannot be reached: %w", c.at, err)
}

// badReply returns the error of an undecodable reply.
func badReply(err error) error {
	if err == nil {
		return nil
	}
	return stream.Errorf(stream.Internal, "", "the server's reply cannot be decoded: %w", err)
}
