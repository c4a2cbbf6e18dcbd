package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/internal/processors"
	"millrace/internal/servertest"
	"millrace/server"
)

// TestLongTextsTakeTurns: while the most long texts are being read or written, all further long texts wait, over each
// protocol, and short texts do not wait.
func TestLongTextsTakeTurns(t *testing.T) {
	s, stop := servertest.RunWith(t, servertest.UnreadConfig(0))
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	const size = 200 << 10
	raw := bytes.Repeat([]byte{'a'}, size)
	inJSON := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["%s"]}]}`, raw)
	post := func(path, kind, body string) func() error {
		return func() error {
			r, err := http.Post("http://"+s.Addr("http")+"/v2/models/same/"+path, kind, strings.NewReader(body))
			if err != nil {
				return err
			}
			defer r.Body.Close()
			if n, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK || n < 100 {
				return fmt.Errorf("%s, %d bytes, %v", r.Status, n, err)
			}
			return nil
		}
	}
	const octets, form = "application/octet-stream", "application/json"
	long := map[string]func() error{
		"a request in JSON": post("infer?outputs=binary", form, inJSON),
		"an answer in JSON": post("infer?outputs=json", octets, string(raw)),
		"an event":          post("infer_stream?outputs=json", octets, string(raw)),
		"a message of WebSocket": func() error {
			c := servertest.Dial(t, s, "/v2/models/same/stream?codec=opaque&policy=every")
			if err := c.WriteMessage(websocket.BinaryMessage, raw); err != nil {
				return err
			}
			_, msg, err := c.ReadMessage()
			if err == nil && len(msg) < size {
				err = fmt.Errorf("%d bytes: %.100s", len(msg), msg)
			}
			return err
		},
	}
	turns := server.Turns(s)
	room := max(turns.Count()-1, 1)
	for range room {
		if !turns.Begin(processors.LongText) {
			t.Fatal("nothing takes turns")
		}
	}
	type ended struct {
		name string
		err  error
	}
	ends := make(chan ended, len(long))
	for name, do := range long {
		go func() { ends <- ended{name, do()} }() // ends when turns are free again
	}
	for range 100 {
		if err := servertest.IsServed(s); err != nil {
			t.Error(err)
		}
	}
	if n := len(ends); n > 0 {
		t.Errorf("%d did not wait", n)
	}
	for range room {
		turns.End()
	}
	for range long {
		if e := <-ends; e.err != nil {
			t.Errorf("%s: %v", e.name, e.err)
		}
	}
}
