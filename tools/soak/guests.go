package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"millrace/client"
)

// guests are server streams added, changed and removed by requests.
type guests struct {
	run    *run
	number int

	mu    sync.Mutex
	names []string
}

// add adds a stream.
func (g *guests) add(ctx context.Context, rng *rand.Rand) error {
	g.number++
	name := fmt.Sprintf("guest-%d", g.number)
	c := client.StreamConfig{Name: name, Source: g.run.cameras[1].address(), Model: seenModel,
		FPS: float64(rng.IntN(3) * 4), Sinks: map[string]any{"webhook": g.run.receiver.URL}}
	if _, err := g.run.api.AddServerStream(ctx, c); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names = append(g.names, name)
	return nil
}

// take removes a stream from the list; "" = the list is empty.
func (g *guests) take(rng *rand.Rand) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.names) == 0 {
		return ""
	}
	i := rng.IntN(len(g.names))
	name := g.names[i]
	g.names = append(g.names[:i], g.names[i+1:]...)
	return name
}

// remove removes a stream at any moment of its life, or after the delivery of all results, and then compares the
// results.
func (g *guests) remove(ctx context.Context, rng *rand.Rand) error {
	name := g.take(rng)
	switch {
	case name == "":
		return g.add(ctx, rng)
	case rng.IntN(2) == 0:
		return g.run.api.RemoveServerStream(ctx, name)
	}
	later := context.WithoutCancel(ctx)
	g.run.healing.Go(func() { g.run.problem(g.finish(later, name)) })
	return nil
}

// finish ends the source of a stream, compares the counts of the server with the posts, and removes the stream.
func (g *guests) finish(ctx context.Context, name string) error {
	gone := g.run.gone.address()
	if _, err := g.run.api.ChangeServerStream(ctx, name, client.StreamChange{Source: &gone}); err != nil {
		return err
	}
	s, err := g.run.stream(ctx, name, sinkPatience, func(s *client.ServerStream) bool {
		return s.State == "waiting" && ended(s) && delivered(s)
	})
	if err != nil {
		return err
	}
	g.run.streamLine(s)
	return g.run.api.RemoveServerStream(ctx, name)
}

// change changes a running stream.
func (g *guests) change(ctx context.Context, rng *rand.Rand) error {
	g.mu.Lock()
	names := append([]string{cameraStream}, g.names...)
	g.mu.Unlock()
	name := names[rng.IntN(len(names))]
	fps, window, paused := float64(rng.IntN(3)*3), rng.IntN(4), rng.IntN(2) == 0
	if _, err := g.run.api.ChangeServerStream(ctx, name, client.StreamChange{MaxFPS: &fps, Window: &window,
		Paused: &paused}); err != nil {
		return err
	}
	resumed := false
	_, err := g.run.api.ChangeServerStream(ctx, name, client.StreamChange{Paused: &resumed})
	return err
}

// removeAll finishes all streams.
func (g *guests) removeAll(ctx context.Context) {
	rng := rand.New(rand.NewPCG(0, 0))
	for name := g.take(rng); name != ""; name = g.take(rng) {
		g.run.problem(g.finish(ctx, name))
	}
}
