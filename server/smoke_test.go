package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/server"
	"millrace/workers"
)

func TestSmoke(t *testing.T) {
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0"}
	cfg.Models = []server.ModelConfig{{workers.Config{Name: "identity", Kind: "identity"}}, {workers.Config{Name: "delay", Kind: "delay"}}}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	base := "http://" + s.HTTPAddr().String()
	for _, p := range []string{"/v2", "/v2/health/ready", "/v2/models/identity", "/v2/models/nope"} {
		r, err := http.Get(base + p)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Println(p, r.StatusCode, string(b))
	}
	r, err := http.Post(base+"/v2/models/identity/infer", "application/json", bytes.NewBufferString(`{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,3.5]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	fmt.Println(r.StatusCode, string(b))
	c, _, err := websocket.DefaultDialer.Dial("ws://"+s.HTTPAddr().String()+"/v2/models/delay/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.WriteMessage(websocket.BinaryMessage, []byte("hello"))
		_, m, err := c.ReadMessage()
		fmt.Println(i, string(m), err)
	}
	cancel()
	fmt.Println(c.ReadMessage())
	fmt.Println(c.ReadMessage())
	fmt.Println(<-done)
}
