package frames_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/ingest"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// senders send a picture to the model find over each protocol, and return the reply. end
// closes their connections.
func senders(t *testing.T, s *server.Server) (all map[string]func([]byte) string, end func() error) {
	ws := servertest.Dial(t, s, "/v2/models/find/stream")
	return map[string]func([]byte) string{
		"REST": func(b []byte) string {
			r, err := http.Post("http://"+s.Addr("http")+"/v2/models/find/infer", "application/octet-stream",
				bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			reply := bytes.NewBufferString(r.Status + " ")
			_, _ = reply.ReadFrom(r.Body)
			return reply.String()
		},
		"WebSocket": func(b []byte) string { return servertest.Ask(t, ws, websocket.BinaryMessage, b) },
		"native": func(b []byte) string {
			r, err := s.Native().InferBytes(context.Background(), "find", stream.PNG, b)
			if err != nil {
				return string(stream.CodeOf(err)) + " " + err.Error()
			}
			defer r.Release()
			return r.Outputs[0].Name
		},
	}, ws.Close
}

// A picture above a limit is refused over each protocol before its pixels are decoded, with an error that names the
// setting; later frames are answered.
func TestBoundsOfPicturesOverProtocols(t *testing.T) {
	find := workers.Config{Name: "find", Source: "motion", Policy: stream.Policy{Mode: stream.Every}}
	good := servertest.PNG(t, 20, 20, 0)
	for _, c := range []struct {
		name   string
		limits ingest.Limits
		budget int64
		b      []byte
		want   []string // one text per protocol
	}{
		{"pixels", ingest.Limits{}, 0, servertest.PNG(t, 20000, 20000, 0),
			[]string{"too_large", "limits.max_pixels=67108864"}},
		{"decoded pixels", ingest.Limits{}, 0, servertest.PNG(t, 4097, 4096, 17000),
			[]string{"too_large", "limits.max_decoded_pixels=16777216"}},
		{"pixels a byte", ingest.Limits{}, 0, servertest.PNG(t, 4000, 4200, 0),
			[]string{"too_large", "limits.max_pixels_per_byte=1100"}},
		{"time", ingest.Limits{MaxDecodeTime: time.Millisecond}, 0, servertest.PNG(t, 4096, 4096, 0),
			[]string{"timeout", "limits.max_decode_time=1ms"}},
		{"memory", ingest.Limits{}, 4 << 20, servertest.PNG(t, 8000000, 1, 2000), []string{"too_large",
			"memory.budget"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Limits: c.limits,
				Memory: config.Memory{Budget: c.budget}, Models: []workers.Config{find}})
			all, end := senders(t, s)
			for protocol, send := range all {
				got := send(c.b)
				for _, w := range c.want {
					if !strings.Contains(got, w) {
						t.Errorf("%s: %s\nwant %s", protocol, got, w)
					}
				}
				if got := send(good); !strings.Contains(got, "boxes") {
					t.Errorf("%s, a frame after it: %s", protocol, got)
				}
			}
			_ = end()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if m := s.Memory().Stats(); m.Leases != 0 || m.Leased != 0 {
				t.Errorf("memory is left leased: %+v", m)
			}
		})
	}
}

// Memory for decoding comes from the budget: without memory a frame is dropped, or a request is refused as
// overloaded; once memory is free, the request is answered.
func TestDecodingWithoutMemory(t *testing.T) {
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Memory: config.Memory{Budget: 64 << 20},
		Models: []workers.Config{{Name: "find", Source: "motion", Policy: stream.Policy{Mode: stream.Every}}}})
	wide := servertest.PNG(t, 500000, 2, 0) // two rows of 500 KB as stored, and sums of boxes
	all, end := senders(t, s)
	for protocol, send := range all {
		if got := send(wide); !strings.Contains(got, "boxes") {
			t.Errorf("%s: %s", protocol, got)
		}
		m := s.Memory().Stats()
		rest := m.Budget - m.Leased - m.Reserved - 1<<20
		if err := s.Memory().Charge(rest); err != nil {
			t.Fatal(err)
		}
		got := send(wide)
		if !strings.Contains(got, `"dropped":"memory"`) && !strings.Contains(got, "overloaded") ||
			!strings.Contains(got, "memory") {
			t.Errorf("%s without memory: %s", protocol, got)
		}
		if got := send(servertest.PNG(t, 1000, 1000, 0)); !strings.Contains(got, "boxes") {
			t.Errorf("%s without memory, a smaller picture: %s", protocol, got)
		}
		s.Memory().Refund(rest)
		if got := send(wide); !strings.Contains(got, "boxes") {
			t.Errorf("%s with memory again: %s", protocol, got)
		}
	}
	_ = end()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
