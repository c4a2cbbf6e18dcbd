package service_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/client"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// clientOf returns a client of the server.
func clientOf(t *testing.T, s *server.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// statusOf asks for the status.
func statusOf(t *testing.T, s *server.Server) client.Status {
	t.Helper()
	st, err := clientOf(t, s).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestStatus compares the status with the sent requests, and with the state of the server's parts.
func TestStatus(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Version: "v7", Models: []workers.Config{
			{Name: "slow", Source: "delay", Version: "3", Instances: 2,
				Params: stream.Params{"fixed": "20ms", "per_item": "0s"}},
			{Name: "echo", Source: "identity"},
		},
	})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	in := []stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}}}
	for range 5 {
		r, err := s.Native().Infer(context.Background(), "slow", in)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	bad, err := http.Post("http://"+s.Addr("http")+"/v2/models/echo/infer", "application/json",
		strings.NewReader(`{"inputs":3}`))
	if err != nil {
		t.Fatal(err)
	}
	bad.Body.Close()
	if bad.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", bad.StatusCode)
	}
	first := statusOf(t, s)
	for first.Models[1].StagesUS.Total.Count() < 5 { // a batch is counted after its answers
		first = statusOf(t, s)
	}
	if first.Version != "v7" || first.State != "ready" || first.UptimeSeconds <= 0 || first.Started.After(first.Time) {
		t.Errorf("%+v", first)
	}
	slow := first.Models[1]
	if len(first.Models) != 2 || first.Models[0].Name != "echo" || slow.Name != "slow" {
		t.Fatalf("models %+v", first.Models)
	}
	if slow.Version != "3" || slow.Kind != "delay" || slow.State != "READY" || slow.Workers != 2 ||
		slow.MaxBatch != 8 || slow.Batches != 5 {
		t.Errorf("%+v", slow)
	}
	if slow.Accepted != 5 || slow.Results != 5 || slow.InFlight != 0 || len(slow.Drops)+len(slow.Errors) != 0 {
		t.Errorf("frames %+v", slow)
	}
	if e := first.Models[0]; e.Accepted != 1 || e.Errors["invalid_argument"] != 1 ||
		e.Refused["invalid_argument"] != 1 || len(e.Errors) != 1 {
		t.Errorf("a frame that was refused: %+v", e)
	}
	if n := slow.BatchRows.Count(); n != 5 || slow.BatchRows.Sum != 5 {
		t.Errorf("%d batches with %d rows", n, slow.BatchRows.Sum)
	}
	if p := slow.StagesUS.Run.Quantile(0.01); p < float64((16 * time.Millisecond).Microseconds()) {
		t.Errorf("runs of 20 ms took %v us", p)
	}
	if n := first.Models[0].StagesUS.Total; n.Count() != 0 || n.Bounds == nil {
		t.Errorf("a model without frames has %+v", n)
	}
	if first.Memory.Budget <= 0 || first.Memory.Reserved < 0 || first.Process.Goroutines < 2 ||
		first.Process.HeapBytes <= 0 || first.Process.ResidentBytes <= 0 || first.Process.Processors < 1 {
		t.Errorf("%+v, %+v", first.Memory, first.Process)
	}
	if n := first.Connections["http"].Open; n < 1 {
		t.Errorf("%d connections, want that of the question", n)
	}
	if n, ok := first.Streams["running"]; n != 0 || !ok {
		t.Errorf("streams %v", first.Streams)
	}
}

// TestStatusCountsSessionsAndStreams checks the counts of open sessions and streams.
func TestStatusCountsSessionsAndStreams(t *testing.T) {
	s, end := servertest.Run(t, workers.Config{Name: "echo", Source: "identity"})
	defer func() { _ = end() }()
	c := clientOf(t, s)
	session, err := c.Session(t.Context(), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Open(t.Context(), "echo", client.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	st := statusOf(t, s)
	if st.Sessions["ws"] != 1 || st.Models[0].Streams != 1 {
		t.Errorf("sessions %v, %d streams", st.Sessions, st.Models[0].Streams)
	}
}

func TestStatusRefusesOptions(t *testing.T) {
	s, end := servertest.Run(t)
	defer func() { _ = end() }()
	if code, body := servertest.Get(t, s, "/v2/status?verbose=1"); code != http.StatusBadRequest ||
		!strings.Contains(body, "verbose") {
		t.Errorf("%d %s", code, body)
	}
}
