package tasks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"millrace/server"
	"millrace/tasks"
)

// TestWebhook: the webhook of a task gets the ended task with a signature, again after a failure of the receiver, also
// when the server has restarted in between.
func TestWebhook(t *testing.T) {
	type post struct{ id, signature, body string }
	posts := make(chan post, 10)
	answers := make(chan int, 2)
	answers <- http.StatusServiceUnavailable
	answers <- http.StatusNoContent
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(<-answers)
		posts <- post{r.Header.Get("X-Millrace-Delivery"), r.Header.Get("X-Millrace-Signature"), string(body)}
	}))
	defer receiver.Close()
	dir := t.TempDir()
	set := func(c *server.Config) {
		c.Tasks.Webhooks, c.Tasks.WebhookSecret, c.Sources.AllowPrivate = "on", "key", true
	}
	r := start(t, dir, set)
	task := r.submit("model=echo&webhook="+url.QueryEscape(receiver.URL+"/path"), nil, jsonBody)
	first := <-posts
	r.end()
	r = start(t, dir, set)
	second := <-posts
	if first != second || !strings.HasPrefix(first.id, task.ID+"-") {
		t.Errorf("posts: %+v, then %+v", first, second)
	}
	sum := hmac.New(sha256.New, []byte("key"))
	sum.Write([]byte(first.body))
	if want := "sha256=" + hex.EncodeToString(sum.Sum(nil)); first.signature != want {
		t.Errorf("the signature %s, want %s", first.signature, want)
	}
	if told := r.task(first.body); told.ID != task.ID || told.State != tasks.Finished || told.Result == nil {
		t.Errorf("the message: %s", first.body)
	}
	for {
		_, text := r.do("GET", "/v2/tasks/"+task.ID, nil, nil)
		if w := r.task(text).Webhook; w.State == tasks.Delivered {
			return
		} else if w.State != tasks.Waiting {
			t.Fatalf("the webhook: %+v", w)
		}
	}
}

// TestWebhookRefused: without tasks.webhooks a submission with a webhook is refused, and a private address is not
// called without sources.allow_private.
func TestWebhookRefused(t *testing.T) {
	called := make(chan struct{}, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer receiver.Close()
	query := "/v2/tasks?model=echo&webhook=" + url.QueryEscape(receiver.URL)
	off := start(t, t.TempDir(), nil)
	if a, text := off.do("POST", query, nil, strings.NewReader(jsonBody)); a.StatusCode != 403 ||
		!strings.Contains(text, "tasks.webhooks") {
		t.Errorf("off: %d %s", a.StatusCode, text)
	}
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.Webhooks = "on" })
	if a, text := r.do("POST", "/v2/tasks?model=echo&webhook=ftp://x/", nil,
		strings.NewReader(jsonBody)); a.StatusCode != 400 || !strings.Contains(text, "webhook") {
		t.Errorf("ftp: %d %s", a.StatusCode, text)
	}
	_, text := r.do("POST", query, nil, strings.NewReader(jsonBody))
	for id := r.task(text).ID; ; {
		_, text := r.do("GET", "/v2/tasks/"+id, nil, nil)
		if w := r.task(text).Webhook; w.Error != "" {
			if !strings.Contains(w.Error, "sources.allow_private") || w.State != tasks.GivenUp {
				t.Errorf("the webhook: %+v", w)
			}
			break
		}
	}
	select {
	case <-called:
		t.Error("the receiver at a private address was called")
	default:
	}
}
