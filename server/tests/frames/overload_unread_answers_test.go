package frames_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/server"
)

// dialTight connects with a small window, so that unread data waits in the server.
func dialTight(addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		}); e != nil {
			return e
		}
		return err
	}}
	return d.Dial("tcp", addr)
}

// unread are clients that send a payload to the model same and never read the answer.
var unread = map[string]func(s *server.Server, payload []byte) (end func(), err error){
	"REST":   func(s *server.Server, payload []byte) (func(), error) { return unreadHTTP(s, "infer", payload) },
	"events": func(s *server.Server, payload []byte) (func(), error) { return unreadHTTP(s, "infer_stream", payload) },
	"WebSocket": func(s *server.Server, payload []byte) (func(), error) {
		d := websocket.Dialer{NetDial: func(_, addr string) (net.Conn, error) { return dialTight(addr) }}
		c, _, err := d.Dial("ws://"+s.Addr("http")+"/v2/models/same/stream?codec=opaque&policy=every", nil)
		if err != nil {
			return nil, err
		}
		return func() { c.Close() }, c.WriteMessage(websocket.BinaryMessage, payload)
	},
	"gRPC": func(s *server.Server, payload []byte) (func(), error) {
		const window = 64 << 10
		c, err := grpc.NewClient("passthrough:"+s.Addr("grpc"),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(window),
			grpc.WithInitialConnWindowSize(window),
			grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) { return dialTight(addr) }))
		if err != nil {
			return nil, err
		}
		call, err := inferencepb.NewGRPCInferenceServiceClient(c).ModelStreamInfer(context.Background())
		if err != nil {
			return nil, err
		}
		return func() { c.Close() }, call.Send(&inferencepb.ModelInferRequest{
			ModelName: "same", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
				Shape: []int64{int64(len(payload))}}},
			RawInputContents: [][]byte{payload},
		})
	},
}

func unreadHTTP(s *server.Server, call string, payload []byte) (func(), error) {
	c, err := dialTight(s.Addr("http"))
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST /v2/models/same/%s?outputs=json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "+
		"application/octet-stream\r\nContent-Length: %d\r\n\r\n", call, len(payload))
	_, err = c.Write(append([]byte(head), payload...))
	return func() { c.Close() }, err
}

// TestUnreadAnswers: the unread answers of thirty clients are charged to the memory budget over every protocol: in
// the model's memory and pieces of their text, or in a lease. Other clients are served.
func TestUnreadAnswers(t *testing.T) {
	const clients, size, budget = unreading, 4 << 20, 512 << 20
	payload := bytes.Repeat([]byte{'a'}, size)
	for name, c := range map[string]struct {
		leases, bytes int64 // of each client; bytes at most
	}{
		"REST":      {2, size + size/4 + 96<<10},
		"events":    {2, 4 * size},
		"WebSocket": {2, 4 * size},
		"gRPC":      {1, size + size/4 + 16<<10}, // and the call
	} {
		t.Run(name, func(t *testing.T) {
			s, stop := servertest.RunWith(t, servertest.UnreadConfig(budget))
			if err := servertest.IsServed(s); err != nil {
				t.Fatal(err)
			}
			servertest.Until(t, func() bool { return s.Memory().Stats().Leases == 0 }) // of the clients
			before, heap := s.Memory().Stats(), liveHeap()
			var ends []func()
			for range clients {
				end, err := unread[name](s, payload)
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, end)
			}
			m := before
			defer func() {
				if t.Failed() {
					t.Logf("before %+v, then %+v", before, m)
				}
			}()
			servertest.Until(t, func() bool {
				m = s.Memory().Stats()
				return m.Leases >= c.leases*clients && m.Leased >= size*clients
			})
			// one answer may be in progress
			if held := m.Leased - before.Leased; held > c.bytes*clients+2*size || m.Denied > 0 {
				t.Errorf("%d bytes are held, %d leases were refused", held, m.Denied)
			}
			// An eighth of the budget is for memory not charged yet.
			if beside := liveHeap() - heap - (m.Leased - before.Leased) - m.Idle; beside > budget/8+16<<20 {
				t.Errorf("%d bytes are held beside the budget", beside)
			}
			if err := servertest.IsServed(s); err != nil {
				t.Error(err)
			}
			for _, end := range ends {
				end()
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTextBeyondTheBudget: a text above the free budget is refused with the name of the setting, and smaller texts
// are answered.
func TestTextBeyondTheBudget(t *testing.T) {
	s, stop := servertest.RunWith(t, servertest.UnreadConfig(9<<20))
	payload := bytes.Repeat([]byte{'"'}, 3<<20)
	ws := servertest.Dial(t, s, "/v2/models/same/stream?codec=opaque&policy=every")
	if got := servertest.Ask(t, ws, websocket.BinaryMessage, payload); !strings.Contains(got, `"code":"overloaded"`) ||
		!strings.Contains(got, "memory.budget") {
		t.Errorf("%.300s", got)
	}
	if got := servertest.Ask(t, ws, websocket.BinaryMessage, []byte("text")); !strings.Contains(got,
		`"data":["text"]`) {
		t.Errorf("%.300s", got)
	}
	ws.Close()
	for call, code := range map[string]int{"infer_stream": http.StatusServiceUnavailable, "infer": http.StatusOK} {
		servertest.Until(t, func() bool { return s.Memory().Stats().Leases == 0 }) // of the request before
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/same/"+call+"?outputs=json",
			"application/octet-stream", bytes.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != code || err != nil || code == http.StatusOK && len(text) < 2*len(payload) ||
			code != http.StatusOK && !bytes.Contains(text, []byte("memory.budget")) {
			t.Errorf("%s: %s, %.300s, %v", call, r.Status, text, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// liveHeap returns the bytes of Go's heap in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
