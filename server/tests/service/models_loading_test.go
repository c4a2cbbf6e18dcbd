package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/batching"
	"millrace/internal/oip"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// patient is a worker whose start waits for mayStart.
type patient struct{ workers.Base }

// begun receives a value for each starting patient; closing mayStart lets patients start.
var begun, mayStart chan struct{}

func init() {
	workers.Register(workers.Kind{Name: "patient", New: func() workers.Worker { return &patient{} }})
}

func (*patient) Init(ctx context.Context, _ *workers.Env) (*stream.Model, error) {
	begun <- struct{}{}
	select {
	case <-mayStart:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*patient) Run(context.Context, *batching.Batch) error { return nil }

// A server stopped during a load reports the load.
func TestStoppedWhileLoading(t *testing.T) {
	begun, mayStart = make(chan struct{}, 1), make(chan struct{})
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "soon", Source: "patient"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-begun
	cancel(errors.New("a signal was received"))
	if err := <-ended; err == nil || err.Error() != "a signal was received while model soon was being loaded" {
		t.Error(err)
	}
}

// While the server starts, the index lists each configured model once, with its version, and requests can load a
// loading model by version.
func TestIndexWhileModelsAreLoaded(t *testing.T) {
	begun, mayStart = make(chan struct{}, 1), make(chan struct{})
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Models: []workers.Config{
		{Name: "here", Source: "identity"}, {Name: "soon", Source: "patient"},
		{Name: "last", Version: "7", Source: "identity"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-begun
	post := func(path, body string) (status int, answer []byte) {
		resp, err := http.Post("http://"+s.Addr("http")+"/v2/repository/"+path, "application/json",
			strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer resp.Body.Close()
		if answer, err = io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		return resp.StatusCode, answer
	}
	index := func(when string, want ...oip.IndexRow) {
		t.Helper()
		var rows []oip.IndexRow
		if _, answer := post("index", ""); json.Unmarshal(answer, &rows) != nil || !slices.Equal(rows, want) {
			t.Errorf("%s: %s, want %v", when, answer, want)
		}
	}
	// 503 before REST serves
	for status, limit := 0, time.Now().Add(time.Minute); status != http.StatusOK && time.Now().Before(limit); {
		status, _ = post("index", "")
	}
	index("at the start", oip.IndexRow{Name: "here", Version: "1", State: "READY"},
		oip.IndexRow{Name: "last", Version: "7", State: "LOADING"}, oip.IndexRow{Name: "soon", Version: "1",
			State: "LOADING"})
	// refused at once, where a load waits
	const load, unknown = "models/soon/versions/%d/load", `{"parameters": {"unknown": 1}}`
	for version, want := range map[int]int{1: http.StatusBadRequest, 2: http.StatusNotFound} {
		if status, answer := post(fmt.Sprintf(load, version), unknown); status != want {
			t.Errorf("version %d: status %d, want %d: %s", version, status, want, answer)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, answer := post(fmt.Sprintf(load, 1), ""); status != http.StatusOK {
			t.Errorf("status %d: %s", status, answer)
		}
	})
	close(mayStart)
	wg.Wait()
	<-s.Ready()
	index("once started", oip.IndexRow{Name: "here", Version: "1", State: "READY"},
		oip.IndexRow{Name: "last", Version: "7", State: "READY"}, oip.IndexRow{Name: "soon", Version: "1",
			State: "READY"})
}
