package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chat is a service with a route of events, a route without events, and a route in OpenAI's form.
const chat = `
import millrace

class Chat:
    def infer(self, to: int):
        for i in range(to):
            if i == 3:
                raise millrace.Error("three", "invalid_argument")
            yield {"n": i}

    @millrace.endpoint
    def words(self, text: str):
        yield from text.split()

    @millrace.endpoint
    def one(self, text: str) -> dict:
        return {"text": text}

    @millrace.endpoint("/v1/chat/completions", openai=True)
    def complete(self, messages: list, stream: bool = False, model: str = ""):
        text = messages[-1]["content"].split()
        if text == ["fail"]:
            raise millrace.Error("no answer", "invalid_argument")
        if text == ["twice"]:
            yield {}
        if not stream:
            yield {"object": "chat.completion", "content": " ".join(text)}
            return
        for word in text:
            if word == "late":
                raise millrace.Error("too late")
            yield {"object": "chat.completion.chunk", "delta": word}
`

// Accept decides whether a route answers with JSON or events; in OpenAI's form, "stream" in the body decides.
func TestAnswerForms(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "chat.py")
	if err := os.WriteFile(file, []byte(chat), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, file)
	const sse, asJSON = "text/event-stream", "application/json"
	say := func(content, more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + content + `"}]` + more + `}`
	}
	for _, c := range []struct {
		path, accept, body string
		status             int
		media, want        string
	}{
		{"infer", sse, `{"to":2}`, 200, sse, "data: {\"n\":0}\n\ndata: {\"n\":1}\n\nevent: end\ndata: {}\n\n"},
		{"infer", "*/*", `{"to":1}`, 200, sse, "data: {\"n\":0}\n\nevent: end\ndata: {}\n\n"},
		{"infer", asJSON, `{"to":2}`, 200, asJSON, `[{"n":0},{"n":1}]`},
		{"infer", asJSON + "; q=0.9, */*;q=0.1", `{"to":0}`, 200, asJSON, `[]`},
		{"infer", asJSON, `{"to":4}`, 400, asJSON, `{"error":"three","code":"invalid_argument"}`},
		{"infer", asJSON, `{"to":"x"}`, 422, asJSON, `detail`},
		{"infer", "text/csv", `{"to":1}`, 406, asJSON, `does not name`},
		{"words", asJSON, `{"text":"a \"b"}`, 200, asJSON, `["a","\"b"]`},
		{"one", asJSON, `{"text":"a"}`, 200, asJSON, `{"text":"a"}`},
		{"one", "", `{"text":"a"}`, 200, asJSON, `{"text":"a"}`},
		{"one", sse, `{"text":"a"}`, 200, sse, "data: {\"text\":\"a\"}\n\nevent: end\ndata: {}\n\n"},
		{"v1/chat/completions", asJSON, say("a b", `,"stream":true`), 200, sse,
			"data: {\"object\":\"chat.completion.chunk\",\"delta\":\"a\"}\n\ndata: " +
				"{\"object\":\"chat.completion.chunk\",\"delta\":\"b\"}\n\ndata: [DONE]\n\n"},
		{"v1/chat/completions", asJSON, say("a b", ""), 200, asJSON, `{"object":"chat.completion","content":"a b"}`},
		{"v1/chat/completions", sse, say("a b", `,"stream":false`), 200, asJSON,
			`{"object":"chat.completion","content":"a b"}`},
		{"v1/chat/completions", asJSON, say("fail", ""), 400, asJSON,
			`{"error":{"message":"no answer","type":"invalid_request_error","code":"invalid_argument"}}`},
		{"v1/chat/completions", asJSON, say("fail", `,"stream":true`), 400, asJSON,
			`{"error":{"message":"no answer","type":"invalid_request_error","code":"invalid_argument"}}`},
		{"v1/chat/completions", asJSON, say("late x", `,"stream":true`), 500, asJSON, `"message":"too late"`},
		{"v1/chat/completions", asJSON, say("x late", `,"stream":true`), 200, sse,
			"data: {\"error\":{\"message\":\"too late\",\"type\":\"server_error\",\"code\":\"internal\"}}\n\ndata: " +
				"[DONE]\n\n"},
		{"v1/chat/completions", asJSON, say("twice", ""), 500, asJSON, `several times`},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/apps/chat/"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", asJSON)
		req.Header.Set("Accept", c.accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), c.media) ||
			!strings.Contains(string(text), c.want) {
			t.Errorf("%s as %q, %s: %s %s\n%s\nwant %s", c.path, c.accept, c.body, resp.Status,
				resp.Header.Get("Content-Type"), text, c.want)
		}
	}
}
