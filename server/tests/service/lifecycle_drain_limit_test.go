package service_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/config"
	pb "millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/workers"
)

// TestDrainLimit: when the time for drain is over and models have not answered, each client gets its protocol's
// notice before its connection ends.
func TestDrainLimit(t *testing.T) {
	cost, err := config.ParseModel("cost=delay,fixed=10m,instances=8,limits.run=1h")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Drain:  200 * time.Millisecond,
		Models: []workers.Config{cost}})
	var wg sync.WaitGroup
	post := func(accept string, wantCode int, want string) {
		req, err := http.NewRequest("POST", s.URL("http")+"/v2/models/cost/infer", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("Content-Type", "application/octet-stream")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", accept, err)
			return
		}
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != wantCode || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s, %v", accept, r.StatusCode, text, err)
		}
	}
	wg.Go(func() { post("application/json", 503, "the server has shut down before the model answered") })
	wg.Go(func() { post("text/event-stream", 503, "before the model answered") })
	socket := func(name string, c *websocket.Conn, want string) {
		var all strings.Builder
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			_, text, err := c.ReadMessage()
			var closed *websocket.CloseError
			switch {
			case errors.As(err, &closed) && closed.Code == websocket.CloseGoingAway:
				if !strings.Contains(all.String(), want) {
					t.Errorf("%s: before the close: %s", name, &all)
				}
				return
			case err != nil:
				t.Errorf("%s: %v after %s", name, err, &all)
				return
			}
			fmt.Fprintf(&all, "%s\n", text)
		}
	}
	for name, path := range map[string]string{"plain": "/v2/models/cost/stream", "v1": "/v2/stream"} {
		d := websocket.Dialer{}
		if name == "v1" {
			d.Subprotocols = []string{wire.Subprotocol}
		}
		c, _, err := d.Dial("ws://"+s.Addr("http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		frame := []byte("x")
		if name == "v1" {
			if err := c.WriteMessage(websocket.TextMessage,
				[]byte(`{"type":"open","sid":1,"model":"cost","policy":{"mode":"every","window":4}}`)); err != nil {
				t.Fatal(err)
			}
			frame = make([]byte, wire.HeaderLen+1)
			frame[0], frame[1], frame[4] = 1, 1, 1
		}
		if err := c.WriteMessage(websocket.BinaryMessage, frame); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { socket(name, c, `"code":"draining"`) })
	}
	wg.Go(func() {
		_, err := servertest.GRPC(t, s).ModelInfer(t.Context(), &pb.ModelInferRequest{
			ModelName: "cost", RawInputContents: [][]byte{[]byte("x")},
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "UINT8", Shape: []int64{1}}},
		})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "before the model answered") {
			t.Error(err)
		}
	})
	for s.Models().Snapshot()[0].Busy < 5 {
		<-time.After(time.Millisecond)
	}
	if err := stop(); err == nil || !strings.Contains(err.Error(), "close models") {
		t.Errorf("the server ended with %v", err)
	}
	wg.Wait()
}
