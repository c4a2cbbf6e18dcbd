package main

import (
	"context"
	"fmt"

	"millrace/config"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// target is a measured server, in this process.
type target struct {
	*server.Server
	addr string // of HTTP
	end  func() error
}

// The service time and batch size of the delay models.
const (
	delayFixed, delayPerItem = 2.0, 1.0 // ms
	delayBatch               = 8
	delayService             = delayFixed + delayBatch*delayPerItem // ms of a full batch
)

// start starts the server measured in most rows.
func (b *bench) start() (err error) {
	b.server, err = serve(nil,
		workers.Config{Name: "identity", Source: "identity", Instances: 2},
		workers.Config{Name: "motion", Source: "motion", Instances: 2},
		delayModel("delay", stream.Params{}), delayModel("stateful", stream.Params{"stateful": true}), graphModel(),
	)
	return err
}

func delayModel(name string, p stream.Params) workers.Config {
	p["fixed"], p["per_item"] = fmt.Sprintf("%gms", delayFixed), fmt.Sprintf("%gms", delayPerItem)
	return workers.Config{Name: name, Source: "delay", Instances: 2, Batching: workers.Batching{MaxSize: delayBatch},
		Params: p}
}

func (b *bench) stop() error { return b.server.end() }

// serve runs a server until a call of its end. adjust, if not nil, changes its configuration.
func serve(adjust func(*server.Config), models ...workers.Config) (*target, error) {
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"}, Models: models}
	if adjust != nil {
		adjust(&cfg)
	}
	return serveConfig(cfg)
}

// serveText is serve with the text of a configuration file, for a process of its own.
func serveText(text string) (*target, error) {
	cfg, err := config.Parse([]byte(text), "configuration")
	if err != nil {
		return nil, err
	}
	cfg.OwnProcess = true // as the command serve does
	return serveConfig(cfg)
}

func serveConfig(cfg server.Config) (*target, error) {
	s, err := server.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // ends in end
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		return nil, err
	}
	return &target{Server: s, addr: s.Addr("http"), end: func() error {
		cancel()
		return <-done
	}}, nil
}
