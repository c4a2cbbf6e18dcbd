package sinks

import (
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"millrace/internal/backoff"
	"millrace/internal/oip"
	"millrace/internal/secret"
	"millrace/internal/video"
	post "millrace/internal/webhook"
	"millrace/stream"
)

const (
	webhookQueue    = 1000 // maximum number of waiting results; further results are lost
	webhookBatch    = 100
	webhookDelay    = time.Second // after the first of a batch
	webhookAttempts = 8
)

func init() {
	Register(Kind{Name: "webhook", Remote: true, New: func() Settings { return new(Webhook) }})
}

// Webhook posts results to an address.
type Webhook struct {
	URL    string `json:"webhook" request:"any" example:"http://127.0.0.1:9/results" help:"post results to this http or https address"`
	Send   string `json:"webhook_send" words:"results events" default:"results" request:"any" advanced:"yes" help:"results, or only events of lines and zones, and clips; with data, events wait on disk (docs/events.md)"`
	Secret string `json:"webhook_secret" request:"any" advanced:"yes" help:"secret of the signature of posts (docs/streams.md)"`

	Headers []string `json:"webhook_headers" secret:"yes" advanced:"yes" example:"Authorization: file:/run/secrets/ntfy" help:"further headers of posts, each NAME: VALUE or NAME: file:PATH"`
	Body    string   `json:"webhook_body" advanced:"yes" example:"{{json .}}" help:"a template of the body, for a post for each line (docs/streams.md)"`
	Type    string   `json:"webhook_content_type" advanced:"yes" example:"application/json" help:"content type of posts; default: application/json"`
}

// Enabled implements Settings.
func (c *Webhook) Enabled() bool { return c.URL != "" }

func (c *Webhook) sendsEvents() bool { return c.Send == sendEvents }

// Validate implements Settings.
func (c *Webhook) Validate() error {
	if c.URL == "" {
		for key, set := range map[string]bool{"webhook_send": c.Send != "", "webhook_secret": c.Secret != "",
			"webhook_headers": len(c.Headers) > 0, "webhook_body": c.Body != "", "webhook_content_type": c.Type != ""} {
			if set {
				return stream.Errorf(stream.InvalidArgument, "sinks."+key, "is set without sinks.webhook")
			}
		}
		return nil
	}
	if err := post.Check(c.URL); err != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.webhook", "%w", err)
	}
	for i, h := range c.Headers {
		if _, _, err := header(h); err != nil {
			return stream.Errorf(stream.InvalidArgument, fmt.Sprintf("sinks.webhook_headers[%d]", i), "%w", err)
		}
	}
	if _, _, err := mime.ParseMediaType(c.Type); c.Type != "" && err != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.webhook_content_type", "%w", err)
	}
	if _, err := c.body(); err != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.webhook_body", "%w", err)
	}
	return nil
}

// body returns the template, nil for none.
func (c *Webhook) body() (*body, error) {
	if c.Body == "" {
		return nil, nil
	}
	kind, _, err := mime.ParseMediaType(cmp.Or(c.Type, "application/json"))
	if err != nil {
		return nil, err
	}
	return parseBody(c.Body, kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// header splits a header of the configuration.
func header(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, ":")
	name, value = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
	switch {
	case !found || value == "" || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
		return "", "", errors.New("is not a header such as Authorization: file:/run/secrets/ntfy")
	case name == "Content-Type":
		return "", "", errors.New("is Content-Type: set sinks.webhook_content_type")
	case strings.HasPrefix(name, "X-Millrace-"), slices.Contains([]string{"Host", "Content-Length", "Connection",
		"Transfer-Encoding", "Trailer", "Upgrade", "Keep-Alive", "Te"}, name):
		return "", "", fmt.Errorf("is %s, which the server sets: leave it out", name)
	}
	return name, value, nil
}

// webhook posts results to an address, in batches and in order:
//
//	{"stream":NAME,"results":[...]}
//
// Events are in "events", in place of "results". With a template, each line has a post of its own.
//
// The id of a delivery is RUN-NUMBER: RUN is new for each webhook, NUMBER counts the batches from 1.
type webhook struct {
	stream, url, secret string
	content             string // results or events
	log                 *slog.Logger
	prefix              string // of the ids of deliveries
	client              *post.Client
	headers             []string
	body                *body  // nil = none
	kind                string // content type
	invalid             error  // of the template
	backoff             backoff.Backoff
	lostBefore          uint64 // results, before the first failure in a row
	lossLogged          bool   // the loss of results since the failure has been logged

	queued
}

// Open implements Settings. The sink refuses addresses forbidden by Env.Allow after every look-up of the name.
func (c *Webhook) Open(e Env) Sink {
	h := &webhook{
		content: cmp.Or(c.Send, sendResults),
		stream:  e.Stream, url: c.URL, secret: c.Secret, log: e.Log, prefix: crand.Text(),
		backoff: backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second},
		client:  post.New(1, e.Allow),
		headers: c.Headers, kind: c.Type,
	}
	h.body, h.invalid = c.body()
	h.begin(webhookQueue, e)
	return h
}

// Run implements Sink.
func (h *webhook) Run(ctx context.Context) {
	defer h.client.Close()
	last, stop := afterGrace(ctx)
	defer stop()
	if _, err := h.header(); err != nil { // noticed before the first result
		h.note(err, true)
	}
	for number := 1; ; number++ {
		batch := h.gather()
		if len(batch) == 0 {
			return
		}
		delivered, kept := h.deliver(ctx, last, fmt.Sprintf("%s-%d", h.prefix, number), batch)
		if delivered {
			h.settle(uint64(len(batch)), 0)
			continue
		}
		if kept {
			for range h.queue { // until Close
			}
			return
		}
		h.settle(0, uint64(len(batch)))
		if !h.lossLogged {
			h.lossLogged = true
			h.log.Warn("a stream's webhook loses results", "stream", h.stream, "address", post.Host(h.url), "lost",
				h.lost.Load()-h.lostBefore)
		}
	}
}

// gather waits for a batch. An empty batch means that the webhook was closed and everything is delivered.
func (h *webhook) gather() (batch [][]byte) {
	line, more := <-h.queue
	if !more {
		return nil
	}
	batch = append(batch, line)
	if h.body != nil {
		return batch
	}
	delay := time.NewTimer(webhookDelay)
	defer delay.Stop()
	for len(batch) < webhookBatch {
		select {
		case line, more := <-h.queue:
			if !more {
				return batch
			}
			batch = append(batch, line)
		case <-delay.C:
			return batch
		}
	}
	return batch
}

// text returns the body of a post.
func (h *webhook) text(batch [][]byte) ([]byte, error) {
	if h.invalid != nil {
		return nil, fmt.Errorf("sinks.webhook_body: %w", h.invalid)
	}
	if h.body != nil {
		text, err := h.body.render(batch[0])
		if err != nil {
			err = fmt.Errorf("sinks.webhook_body: %w", err)
		}
		return text, err
	}
	text := oip.AppendString([]byte(`{"stream":`), h.stream)
	text = append(append(append(text, `,"`...), h.content...), `":[`...)
	return append(append(text, bytes.Join(batch, []byte(","))...), ']', '}'), nil
}

// header returns the headers of the configuration. Files are read for each attempt, so that a secret may change.
func (h *webhook) header() (http.Header, error) {
	all := http.Header{}
	for i, text := range h.headers {
		name, value, err := header(text)
		if err == nil {
			value, err = secret.Read(value)
		}
		if err == nil && !httpguts.ValidHeaderFieldValue(value) {
			err = errors.New("the file has characters that a header may not have")
		}
		if err != nil {
			return nil, fmt.Errorf("sinks.webhook_headers[%d]: %w", i, err)
		}
		all.Add(name, value)
	}
	return all, nil
}

// deliver posts a batch until the batch is accepted, refused, lost, or kept by the caller at the end. After the end of
// ctx there is one more attempt, until last ends. A batch that the caller keeps has no more attempts than one after
// Close.
func (h *webhook) deliver(ctx, last context.Context, id string, batch [][]byte) (delivered, kept bool) {
	body, err := h.text(batch)
	if err != nil {
		h.note(err, false)
		return false, false
	}
	if len(body) == 0 { // by the template
		return true, false
	}
	h.backoff.Reset()
	for attempt := 1; ; attempt++ {
		ending := ctx.Err() != nil || h.keeps && h.closing.Err() != nil // this attempt is the last
		again, err := h.post(last, id, body)
		h.note(err, again)
		switch {
		case err == nil:
			return true, false
		case !again || attempt == webhookAttempts && !h.keeps || ctx.Err() != nil && !h.keeps:
			return false, false
		case ending:
			return false, true
		}
		closing := h.closing.Done()
		if !h.keeps {
			closing = nil
		}
		t := time.NewTimer(h.backoff.Next(rand.Float64()))
		select {
		case <-t.C:
		case <-closing:
		case <-ctx.Done():
		}
		t.Stop()
		h.retries.Add(1)
	}
}

// note records the result of an attempt, and logs the first failure in a row and the success after the failure. again
// says that the delivery will be retried. The log has only the receiver's host, because the path of a webhook is
// often a secret.
func (h *webhook) note(err error, again bool) {
	failed := h.failure.Load() != nil
	if err == nil {
		if h.fail(nil); failed {
			h.log.Info("a stream's webhook takes results again", "stream", h.stream, "address", post.Host(h.url),
				"lost", h.lost.Load()-h.lostBefore)
		}
		return
	}
	h.fail(errors.New(video.Redact(err.Error())))
	if !failed {
		err = post.Reason(err)
		h.lostBefore, h.lossLogged = h.lost.Load(), false
		text := "a stream's webhook fails: results wait, and are lost when the receiver is down for too long"
		if !again {
			text = "a delivery of a stream's webhook fails, and is not tried again"
		}
		h.log.Warn(text, "stream", h.stream, "address", post.Host(h.url), "error", video.Redact(err.Error()))
	}
}

// post makes one attempt. again says that another attempt may succeed.
func (h *webhook) post(ctx context.Context, id string, body []byte) (again bool, err error) {
	headers, err := h.header()
	if err != nil {
		return true, err
	}
	again, err = h.client.Post(ctx, h.url, post.Message{ID: id, Secret: h.secret, Body: body, Type: h.kind,
		Header: headers})
	if err != nil {
		err = fmt.Errorf("sinks.webhook: %w", err)
	}
	return again, err
}
