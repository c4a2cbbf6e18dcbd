package grpc_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/server"
	"millrace/workers"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one for the process
		// The pool looks every ten seconds for the end of its server.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// start runs a server and connects a client. done returns the server's error after
// stop.
func start(t *testing.T, limits ingest.Limits) (ctx context.Context, s *server.Server,
	client grpc_health_v1.HealthClient, stop func(), done chan error) {
	t.Helper()
	s, err := server.New(server.Config{HTTP: "off", GRPC: "127.0.0.1:0", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	// Ends a hanging test.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	running, stop := context.WithCancel(ctx)
	done = make(chan error, 1)
	go func() { done <- s.Run(running); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	<-s.Ready()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return ctx, s, grpc_health_v1.NewHealthClient(conn), stop, done
}

// The number of endless calls is limited. Other calls continue, and an ended call makes room.
func TestWatchersAreBounded(t *testing.T) {
	ctx, _, client, _, _ := start(t, ingest.Limits{MaxWatchers: 2})
	watch := func() (end func(), err error) {
		ctx, end := context.WithCancel(ctx)
		w, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		return end, err
	}
	first, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	second, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	defer second()
	third, err := watch()
	third()
	if status.Code(err) != codes.Unavailable || !strings.Contains(status.Convert(err).Message(),
		"limits.max_watchers") {
		t.Fatalf("one more than the limit: %v", err)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	first()
	for { // the server learns of the end a little later
		again, err := watch()
		again()
		if err == nil {
			break
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
}

func TestHealth(t *testing.T) {
	ctx, s, client, stop, done := start(t, ingest.Limits{})
	check := func(service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	if got := check(""); got != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("the server is %v", got)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "echo"}); status.Code(
		err) != codes.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
	watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("watched %v, %v, want %v", r, err, want)
		}
	}
	next(grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
	if _, err := s.Models().LoadConfig(ctx, workers.Config{Name: "echo", Kind: "identity"}, true); err != nil {
		t.Fatal(err)
	}
	next(grpc_health_v1.HealthCheckResponse_SERVING)
	if got := check("echo"); got != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("the model is %v", got)
	}
	list, err := client.List(ctx, &grpc_health_v1.HealthListRequest{})
	if err != nil || list.Statuses[""].GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING ||
		list.Statuses["echo"].GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", list, err)
	}
	// The end of the server ends endless calls, so that these calls do not delay the drain.
	stop()
	for {
		r, err := watch.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the watch ended with %v", err)
			}
			break
		}
		if r.Status == grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("still serving at the end")
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
