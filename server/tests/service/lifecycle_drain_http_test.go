package service_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// keptConn is a connection with several requests.
type keptConn struct {
	net.Conn
	in *bufio.Reader
}

func (k keptConn) send(t *testing.T, method, path, body string) {
	t.Helper()
	_ = k.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(k, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", method, path,
		len(body), body); err != nil {
		t.Fatal(err)
	}
}

// reply reads a reply, and reports whether the server then closes the connection.
func (k keptConn) reply(t *testing.T) (code int, closed bool) {
	t.Helper()
	resp, err := http.ReadResponse(k.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	_ = resp.Write(&rest)
	return resp.StatusCode, resp.Close
}

// A draining server answers requests on kept connections, with 503 for requests to models, and closes each connection
// after its reply.
func TestDrainOnKeptConnections(t *testing.T) {
	cost, err := config.ParseModel("cost=delay,fixed=700ms")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{cost}})
	var all []keptConn
	for range 3 {
		c, err := net.Dial("tcp", s.Addr("http"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		k := keptConn{c, bufio.NewReader(c)}
		k.send(t, "GET", "/v2/models/cost", "")
		if code, closed := k.reply(t); code != 200 || closed {
			t.Fatalf("%d, closing %v", code, closed)
		}
		all = append(all, k)
	}
	const infer = `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["x"]}]}`
	all[0].send(t, "POST", "/v2/models/cost/infer", infer) // holds the end up
	for s.Models().Snapshot()[0].Busy == 0 {
		<-time.After(time.Millisecond)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = stop() }()
	defer func() { <-ended }()
	for {
		ready, err := http.Get(s.URL("http") + "/v2/health/ready")
		if err != nil {
			t.Fatal(err)
		}
		_ = ready.Body.Close()
		if ready.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	all[1].send(t, "POST", "/v2/models/cost/infer", infer)
	if code, closed := all[1].reply(t); code != 503 || !closed {
		t.Errorf("infer: %d, closing %v", code, closed)
	}
	all[2].send(t, "GET", "/v2/models/cost", "")
	if code, closed := all[2].reply(t); code != 200 && code != 503 || !closed {
		t.Errorf("metadata: %d, closing %v", code, closed)
	}
	if code, closed := all[0].reply(t); code != 200 || !closed {
		t.Errorf("in flight: %d, closing %v", code, closed)
	}
}
