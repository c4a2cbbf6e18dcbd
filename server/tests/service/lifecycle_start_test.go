package service_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func TestServesAndDrains(t *testing.T) {
	s, end := servertest.Run(t, workers.Config{Name: "echo", Source: "identity"}, workers.Config{Name: "find",
		Source: "motion"})
	if code, body := servertest.Get(t, s, "/v2/health/ready"); code != 200 {
		t.Errorf("ready: %d %s", code, body)
	}
	if code, body := servertest.Get(t, s, "/v2/models/find"); code != 200 || !strings.Contains(body, "boxes") {
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
		if code, body := servertest.Get(t, s, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := servertest.Get(t, s, "/metrics"); code != 200 ||
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
	s, end := servertest.Run(t)
	if err := s.Run(context.Background()); err == nil {
		t.Error("a second Run began")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
