package server

import (
	"context"
	"testing"

	"millrace/config"
	"millrace/stream"
	"millrace/workers"
)

// A drained server answers requests for a configured model with the error that the server drains, not with an unknown
// model.
func TestModelsOfDrainedServer(t *testing.T) {
	m, err := config.ParseModel("cost=delay")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Models: []workers.Config{m}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, _, err := (backend{s}).Models().Model("cost", ""); stream.CodeOf(err) != stream.Draining {
		t.Errorf("%v", err)
	}
	if _, err := (backend{s}).Open("cost", "", stream.Options{}, nil); stream.CodeOf(err) != stream.Draining {
		t.Errorf("%v", err)
	}
}
