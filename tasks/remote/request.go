package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"millrace/stream/coded"
)

// claimsRoot is the route of claims.
const claimsRoot = "/v2/work/claims"

// post sends a JSON body, and decodes the answer into to unless to is nil or the answer is empty.
func (s *Source) post(ctx context.Context, path string, body, to any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	resp, err := s.opts.Client.Send(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}},
		bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return coded.Errorf(coded.Unavailable, "", "the answer of the server broke off: %w", err)
	}
	if to == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return coded.Errorf(coded.Internal, "", "the answer of the server is not understood: %w", err)
	}
	return nil
}

// maxReply bounds an answer without a file.
const maxReply = 16 << 20

// stallTime is the longest time without progress of a transfer.
const stallTime = time.Minute

var errStalled error = coded.Errorf(coded.Unavailable, "", "no byte of a file was transferred for %v", stallTime)

// stallReader is a transfer that ends when no byte moves for stallTime.
type stallReader struct {
	io.Reader
	timer *time.Timer
}

// withStallTimeout returns a context for a transfer, and the reader of the transfer's bytes. stop must be called.
func withStallTimeout(ctx context.Context) (watched context.Context, of func(io.Reader) io.Reader, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	return watched, func(r io.Reader) io.Reader { return &stallReader{r, timer} }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// Read implements io.Reader.
func (m *stallReader) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.timer.Reset(stallTime)
	return n, err
}

// stallCause returns the reason of a failed transfer.
func stallCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return errStalled
	}
	return err
}
