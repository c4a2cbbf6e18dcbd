package main

import (
	"context"

	"millrace/server"
	"millrace/stream"
)

// target is the server that is measured, in this process.
type target struct {
	*server.Server
	addr string // of HTTP
	end  func() error
}

// The time of a delay batch, and its models' size.
const (
	delayFixed, delayPerItem = 2.0, 1.0 // ms
	delayBatch               = 8
	delayService             = delayFixed + delayBatch*delayPerItem // ms of a full batch
)

func (b *bench) start() error {
	s, err := server.New(server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Log: server.LogConfig{Level: "error"},
		Models: []server.ModelConfig{
			{Name: "identity", Source: "identity", Instances: 2},
			{Name: "motion", Source: "motion", Instances: 2},
			{Name: "delay", Source: "delay", Instances: 2, Batching: server.BatchingConfig{MaxSize: delayBatch},
				Params: stream.Params{"fixed": "2ms", "per_item": "1ms"}},
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // ends in stop
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		return err
	}
	b.server = &target{Server: s, addr: s.HTTPAddr().String(), end: func() error {
		cancel()
		return <-done
	}}
	return nil
}

func (b *bench) stop() error { return b.server.end() }
