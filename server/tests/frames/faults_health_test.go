package frames_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/workers"
)

// TestHealthOfWorkers: the server is live until a worker has failed more often in a row than limits.restarts allows,
// and live again after a load of the worker's model; the server is ready while each model has a worker; all routes
// and gRPC agree.
func TestHealthOfWorkers(t *testing.T) {
	cfg := workers.Config{Name: "m", Source: "trouble", Instances: 2, Limits: workers.Limits{Restarts: -1}}
	s, end := servertest.Run(t, cfg)
	rpc := servertest.GRPC(t, s)
	expect := func(when string, live, ready bool) {
		t.Helper()
		var got [6]bool
		for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			for i, path := range []string{"/health/live", "/v2/health/live", "/health/ready", "/v2/health/ready"} {
				code, _ := servertest.Get(t, s, path)
				got[i] = code == http.StatusOK
			}
			l, err := rpc.ServerLive(t.Context(), &inferencepb.ServerLiveRequest{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := rpc.ServerReady(t.Context(), &inferencepb.ServerReadyRequest{})
			if err != nil {
				t.Fatal(err)
			}
			got[4], got[5] = l.Live, r.Ready
			if got == [...]bool{live, live, ready, ready, live, ready} {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("%s: live %v, %v, %v, ready %v, %v, %v", when, got[0], got[1], got[4], got[2], got[3], got[5])
			}
		}
	}
	die := func() {
		t.Helper()
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/m/infer", "application/octet-stream",
			strings.NewReader("die"))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	expect("at first", true, true)
	die()
	expect("with a worker of two that has failed", false, true)
	if err := s.Models().Swap(context.Background(), "m", cfg); err != nil {
		t.Fatal(err)
	}
	expect("after the model was loaded anew", true, true)
	die()
	die()
	expect("without a worker", false, false)
	if code, _ := servertest.Get(t, s, "/health/startup"); code != http.StatusOK {
		t.Errorf("startup: %d, and it was ready before", code)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
