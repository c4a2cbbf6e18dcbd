//go:build !nometrics

package server_test

import (
	"context"
	"errors"

	"millrace/batching"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// flawed is a worker whose second version fails to start with a flaw; otherwise the start waits for
// server.FlawedGate, if set.
type flawed struct{ workers.Base }

type flawedSettings struct {
	Flaw   int  `yaml:"flaw" request:"any" help:"0 = none"`
	Second bool `yaml:"second" help:"it is version 2"`
}

func init() {
	workers.Register(workers.Kind{Name: "flawed", New: func() workers.Worker {
		return &flawed{}
	}, Settings: func() any { return new(flawedSettings) }})
}

func (*flawed) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	if set := env.Settings.(*flawedSettings); set.Second && set.Flaw != 0 {
		return nil, errors.New("it has a flaw")
	}
	if server.FlawedGate != nil {
		close(server.FlawedBegun)
		<-server.FlawedGate
	}
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*flawed) Run(context.Context, *batching.Batch) error { return nil }
