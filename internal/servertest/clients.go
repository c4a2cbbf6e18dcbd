package servertest

import (
	"encoding/json"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/internal/inferencepb"
	"millrace/internal/wire"
	"millrace/server"
)

// Dial opens a WebSocket connection to the path of the HTTP address.
func Dial(t *testing.T, s *server.Server, path string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Ask sends a frame and returns the reply.
func Ask(t *testing.T, c *websocket.Conn, kind int, frame []byte) string {
	t.Helper()
	if err := c.WriteMessage(kind, frame); err != nil {
		t.Fatal(err)
	}
	_, reply, err := c.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

// GRPC returns a client of the gRPC service of the Open Inference Protocol.
func GRPC(t *testing.T, s *server.Server) inferencepb.GRPCInferenceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return inferencepb.NewGRPCInferenceServiceClient(conn)
}

// Ending is the message in which millrace.v1 reports the result, the error or the drop of a frame.
type Ending struct {
	Type, Code, Message string
	Seq                 uint64
	Width, Height       int
	Outputs             []struct {
		Name string
		Data []float64
	}
}

// V1 opens stream 1 over a new connection.
func V1(t *testing.T, s *server.Server, open string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	c, _, err := d.Dial("ws://"+s.Addr("http")+"/v2/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteMessage(websocket.TextMessage, []byte(open)); err != nil {
		t.Fatal(err)
	}
	return c
}

// EndingOf reads up to a frame's ending.
func EndingOf(t *testing.T, c *websocket.Conn) (e Ending) {
	t.Helper()
	for {
		_, b, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		e = Ending{}
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		switch e.Type {
		case "result", "error", "drop":
			return e
		}
	}
}

// Media returns a binary message of stream 1 in millrace.v1.
func Media(kind wire.Kind, c wire.Codec, flags wire.Flags, seq uint64, payload []byte) []byte {
	return append(wire.AppendHeader(nil, &wire.Header{Kind: kind, Codec: c, Flags: flags, SID: 1, Seq: seq}),
		payload...)
}
