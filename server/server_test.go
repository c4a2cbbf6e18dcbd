package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// TestMain checks for leaks. fasthttp keeps a clock for its Date header, and for each server a sweeper that ends up
// to ten seconds later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// run starts a server on free ports; the returned function stops the server and returns Run's result.
func run(t *testing.T, models ...workers.Config) (*server.Server, func() error) {
	t.Helper()
	return runWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Models: models})
}

// runWith is run for a configuration.
func runWith(t *testing.T, cfg server.Config) (*server.Server, func() error) {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("did not start: %v", err)
	}
	return s, func() error {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		return <-done
	}
}

func get(t *testing.T, s *server.Server, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + s.Addr("http") + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestServesAndDrains(t *testing.T) {
	s, end := run(t, workers.Config{Name: "echo", Source: "identity"}, workers.Config{Name: "find", Source: "motion"})
	if code, body := get(t, s, "/v2/health/ready"); code != 200 {
		t.Errorf("ready: %d %s", code, body)
	}
	if code, body := get(t, s, "/v2/models/find"); code != 200 || !strings.Contains(body, "boxes") {
		t.Errorf("metadata: %d %s", code, body)
	}
	in := []stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}}}
	r, err := s.Native().Infer(context.Background(), "echo", in)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Outputs[0].Data) != "\x01\x02\x03\x04" {
		t.Errorf("%v", r.Outputs)
	}
	r.Release()
	for path, want := range map[string]int{"/v2/models/find/versions/1": 200, "/v2/models/find/versions/9": 404} {
		if code, body := get(t, s, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := get(t, s, "/metrics"); code != 200 ||
		!strings.Contains(body, `http_request_duration_seconds_count{endpoint="/v2/models/:model/versions/:version",`+
			`status="2xx",version="1"} 1`) ||
		!strings.Contains(body, `http_request_duration_seconds_count{endpoint="/v2/models/:model/versions/:version",`+
			`status="4xx",version=""} 1`) || !strings.Contains(body,
		`millrace_frames_total{model="echo",outcome="result",version="1"} 1`) ||
		!strings.Contains(body, `http_request_duration_seconds_count{endpoint="/v2/models/:model",status="2xx",`+
			`version=""} 1`) {
		t.Errorf("metrics: %d %s", code, body)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := s.Native().Infer(context.Background(), "echo", in); stream.CodeOf(err) != stream.Draining {
		t.Errorf("after the end: %v", err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
}

func TestFailedModelEndsTheStart(t *testing.T) {
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{
		{Name: "cost", Source: "delay", Params: stream.Params{"fixed": "soon"}},
	}})
	if err == nil {
		err = s.Run(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), "fixed") || !strings.Contains(err.Error(), "models[0]") {
		t.Fatalf("%v", err)
	}
}

func TestAddressInUseFailsAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = server.New(server.Config{HTTP: l.Addr().String(), GRPC: "off"})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("%v", err)
	}
}

func TestRunsOnce(t *testing.T) {
	s, end := run(t)
	if err := s.Run(context.Background()); err == nil {
		t.Error("a second Run began")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func ExampleServer() {
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{
		{Name: "echo", Source: "identity"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()

	input := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{2},
		Data: stream.AppendFloat32(nil, 1, 2.5)}
	r, err := s.Native().Infer(ctx, "echo", []stream.Tensor{input})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Outputs[0].Name, r.Outputs[0].Shape, r.Outputs[0].Float32s())
	r.Release()

	stop()
	fmt.Println(<-ended)
	// Output:
	// x [2] [1 2.5]
	// <nil>
}
