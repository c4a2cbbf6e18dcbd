package main

import (
	"context"
	"encoding/json"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// graphModel is a graph of three identity steps, one after the other.
func graphModel() workers.Config {
	type names map[string]string
	steps, err := json.Marshal([]any{
		map[string]any{"name": "one", "model": "identity", "input": names{"x": "x"}, "output": names{"x": "a"}},
		map[string]any{"name": "two", "model": "identity", "input": names{"x": "a"}, "output": names{"x": "b"}},
		map[string]any{"name": "three", "model": "identity", "input": names{"x": "b"}, "output": names{"x": "y"}},
	})
	if err != nil {
		panic(err)
	}
	return workers.Config{Name: "graph", Source: "graph", Params: stream.Params{"steps": string(steps),
		"outputs": `["y"]`}}
}

// graphCall compares the time of a call of a graph of three steps with the time of three calls, one after the other,
// of the steps' model.
func graphCall(b *bench) error {
	inputs := []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 16}, Data: make([]byte, 64)}}
	client, ctx := b.server.Native(), context.Background()
	call := func(model string, times int) measurement {
		return func(d time.Duration) (float64, error) {
			return nanoseconds(d, func() error {
				for range times {
					r, err := client.Infer(ctx, model, inputs)
					if err != nil {
						return err
					}
					r.Release()
				}
				return nil
			})
		}
	}
	row, err := b.pair("graph of three identity steps, against three native calls", "ns", call("identity", 3),
		call("graph", 1))
	if err != nil {
		return err
	}
	b.add(row.atMost(1))
	return nil
}
