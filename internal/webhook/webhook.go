// Package webhook posts messages to addresses that users and clients name. The package owns the signature, the
// identification of a delivery, and the connections; callers decide when a message is posted again.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"millrace/internal/outbound"
)

// timeout is the longest time of a post, and of connecting.
const timeout = 10 * time.Second

// ErrRefused is the error of Post for an address that the client refuses.
var ErrRefused = errors.New("webhook: the address is refused")

// Client posts messages. All methods are safe for concurrent use.
type Client struct {
	HTTP *http.Client // tests replace the transport
}

// New returns a client that keeps up to idle connections, and refuses the addresses for which allow returns an error,
// after each look-up of a name; nil = no address is refused. Redirects are not followed.
func New(idle int, allow func(netip.Addr) error) *Client {
	refuse := allow
	if allow != nil {
		refuse = func(a netip.Addr) error {
			if err := allow(a); err != nil {
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
			return nil
		}
	}
	dial := outbound.Dialer(timeout, refuse)
	return &Client{&http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: dial.DialContext, IdleConnTimeout: 30 * time.Second, MaxIdleConns: idle,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Message is the content of a post.
type Message struct {
	ID     string // the same for each attempt; sent as X-Millrace-Delivery
	Secret string // key of the signature; "" = no signature
	Body   []byte
	Type   string      // of Body; "" = application/json
	Header http.Header // further headers
}

// Post makes one attempt. With an error, again says that a later attempt may succeed:
//
//	POST URL
//	Content-Type: application/json, or the type of the message
//	X-Millrace-Delivery: ID
//	X-Millrace-Signature: sha256=HEX, the HMAC of the body, with a secret
func (c *Client) Post(ctx context.Context, to string, m Message) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(m.Body))
	if err != nil {
		return false, err
	}
	req.Header.Set("User-Agent", "millrace")
	maps.Copy(req.Header, m.Header)
	req.Header.Set("Content-Type", cmp.Or(m.Type, "application/json"))
	req.Header.Set("X-Millrace-Delivery", m.ID)
	if m.Secret != "" {
		sum := hmac.New(sha256.New, []byte(m.Secret))
		sum.Write(m.Body)
		req.Header.Set("X-Millrace-Signature", "sha256="+hex.EncodeToString(sum.Sum(nil)))
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusRequestTimeout
	return again, fmt.Errorf("the receiver answered %s", resp.Status)
}

// Check returns an error unless to is an http or https address.
func Check(to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("is not an http or https address")
	}
	return nil
}

// Host returns the address of the receiver without the path, which is often a secret.
func Host(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Reason returns the text of an error of Post without the address of the receiver.
func Reason(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
