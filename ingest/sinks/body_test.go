package sinks

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const crossing = `{"id":"K-7","stream":"gate","type":"cross","rule":"\"Tür\" <1>","direction":"in","class":"person",` +
	`"tracks":[3],"start":1795251000123456,"end":1795251000223456,"speed":2.5}`

// The server posts the body, the content type and the headers of the configuration for each event, with the signature
// of the body. A line with an empty body is not posted.
func TestWebhookBody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("Bearer t0ken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Header["Content-Type"], r.Header["Authorization"], r.Header["Title"],
			r.Header.Get("X-Millrace-Signature") != "", " ", string(text))
	}))
	defer hook.Close()
	c := &Webhook{URL: hook.URL, Send: sendEvents, Secret: "s", Type: "text/plain",
		Headers: []string{"authorization: file:" + file, "Title: Gate"},
		Body:    `{{if eq .type "cross"}}{{.class}} {{.start}} {{gt .speed 2.0}} {{json .rule}}{{end}}`}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	h := c.Open(Env{Stream: "gate", Log: slog.New(slog.DiscardHandler)})
	for _, line := range []string{crossing, `{"type":"clip"}`, crossing} {
		h.Write([]byte(line))
	}
	h.Close()
	h.Run(t.Context())
	if st := h.Stats(); st != (Stats{Sent: 3}) || len(got) != 2 {
		t.Errorf("%+v, %d posts", st, len(got))
	}
	if len(got) == 0 {
		t.FailNow()
	}
	want := `[text/plain] [Bearer t0ken] [Gate] true person 1795251000123456 true "\"Tür\" <1>"`
	if text := <-got; text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// A template that fails loses the event, counted and with the reason; later events go on. A header without its file
// loses nothing that the caller keeps.
func TestWebhookBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := (&Webhook{URL: "http://a/", Body: `{"n": {{.a.b.c}}}`, Secret: "s"}).Open(Env{Stream: "gate",
			Log: slog.New(slog.DiscardHandler)}).(*webhook)
		r := &receiver{statuses: []int{200}}
		h.client.HTTP.Transport = r
		go h.Run(t.Context())
		for _, c := range []struct{ line, failure string }{{`{"a":{"b":7}}`, "line 1:10: executing"},
			{`{"a":{"b":{"c":1}}}`, ""}, {`{"a":{"b":{"c":"x"}}}`, "does not make JSON"}} {
			h.Write([]byte(c.line))
			synctest.Wait()
			text := h.Stats().Error
			if (text == "") != (c.failure == "") || !strings.Contains(text, c.failure) {
				t.Errorf("%s: %q, want %q", c.line, text, c.failure)
			}
		}
		h.Close()
		synctest.Wait()
		if st := h.Stats(); st.Sent != 1 || st.Lost != 2 || !r.signed || len(r.posts) != 1 ||
			r.posts[0] != `2 {"n": 1}` {
			t.Errorf("%+v, %q", st, r.posts)
		}

		file := filepath.Join(t.TempDir(), "token")
		h = (&Webhook{URL: "http://a/", Headers: []string{"X-Token: file:" + file}}).Open(Env{Stream: "gate", Keeps: true,
			Log: slog.New(slog.DiscardHandler)}).(*webhook)
		h.client.HTTP.Transport = r
		go h.Run(t.Context())
		synctest.Wait()
		if st := h.Stats(); !strings.HasPrefix(st.Error, "sinks.webhook_headers[0]: ") {
			t.Errorf("%+v", st)
		}
		h.Write([]byte(`{}`))
		time.Sleep(time.Hour)
		if err := os.WriteFile(file, []byte("t"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		h.Close()
		synctest.Wait()
		if st := h.Stats(); st.Sent != 1 || st.Lost != 0 || st.Error != "" {
			t.Errorf("%+v", st)
		}
	})
}

// Loops, calls and output of a template end.
func TestBodyIsBounded(t *testing.T) {
	for text, want := range map[string]string{
		`{{range 1000000000000}}{{end}}`:                                         "longer than 1s",
		`{{if 1}}{{else}}{{end}}{{with 1}}{{range 1000000000000}}{{end}}{{end}}`: "longer than 1s",
		`{{define "a"}}{{template "b"}}{{template "b"}}{{end}}{{define "b"}}{{range 1000}}{{if false}}{{end}}{{end}}{{end}}` +
			`{{range 3}}{{template "a"}}{{end}}`: "longer than 1s",
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`: "longer than 1s",
		`{{range 1000000}}{{printf "%900d" 1}}{{end}}`:          "longer than 1048576 bytes",
		`{{range .}}{{end}}`: "",
	} {
		b, err := parseBody(text, false)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(0, 0)
		b.now = func() time.Time { now = now.Add(time.Millisecond / 2); return now }
		if _, err = b.render([]byte(`[1]`)); want == "" && err != nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Each setting that would not work is refused by name, a template with the line.
func TestWebhookSettings(t *testing.T) {
	for _, c := range []struct {
		Webhook
		failure string
	}{
		{Webhook{URL: "http://a/", Body: "{{json .}}", Type: "text/plain; charset=utf-8", Headers: []string{"a: b"}}, ""},
		{Webhook{Body: "x"}, "sinks.webhook_body: is set without"},
		{Webhook{Headers: []string{"a: b"}}, "sinks.webhook_headers: is set without"},
		{Webhook{URL: "http://a/", Body: "a\n{{.b"}, "sinks.webhook_body: line 2: "},
		{Webhook{URL: "http://a/", Body: "{{env}}"}, `sinks.webhook_body: line 1: function "env" not defined`},
		{Webhook{Type: "text/plain"}, "sinks.webhook_content_type: is set without"},
		{Webhook{URL: "http://a/", Body: "x", Type: "text plain"}, "sinks.webhook_content_type: "},
		{Webhook{URL: "http://a/", Headers: []string{"a: b", "a"}}, "sinks.webhook_headers[1]: is not a header"},
		{Webhook{URL: "http://a/", Headers: []string{"a b: c"}}, "sinks.webhook_headers[0]: is not a header"},
		{Webhook{URL: "http://a/", Headers: []string{"content-type: c"}}, "set sinks.webhook_content_type"},
		{Webhook{URL: "http://a/", Headers: []string{"x-millrace-signature: c"}}, "which the server sets"},
		{Webhook{URL: "http://a/", Headers: []string{"host: c"}}, "is Host, which the server sets"},
	} {
		err := c.Validate()
		if c.failure == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.failure) {
			t.Errorf("%+v: %v, want %q", c.Webhook, err, c.failure)
		}
	}
}

// The templates of the page make JSON of an event.
func TestDocumentedBodies(t *testing.T) {
	page, err := os.ReadFile("../../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	templates := regexp.MustCompile("(?m)^\\|.*`(.*{{json .*}})`").FindAllStringSubmatch(string(page), -1)
	if len(templates) != 4 {
		t.Fatalf("%d templates: %q", len(templates), templates)
	}
	for _, m := range templates {
		b, err := parseBody(m[1], true)
		if err != nil {
			t.Fatal(err)
		}
		text, err := b.render([]byte(crossing))
		if err != nil || !json.Valid(text) || !strings.Contains(string(text), "Tür") {
			t.Errorf("%s: %s, %v", m[1], text, err)
		}
	}
}
