package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"millrace/client"
)

// Time limit of commands that wait for a loading model, and the interval between two requests for the model's state.
const (
	loadWait  = 2 * time.Minute
	waitPause = 200 * time.Millisecond
)

// waitLoaded waits while the server loads the model, for at most loadWait, with a message on w. The next request
// reports every other state of the model, so waitLoaded returns an error only when ctx ends or the time is over.
func waitLoaded(ctx context.Context, cl *client.Client, model string, w io.Writer) error {
	told := false
	limit := time.NewTimer(loadWait)
	defer limit.Stop()
	for loading(ctx, cl, model) {
		if !told {
			fmt.Fprintf(w, "waiting for model %s, which is being loaded (%v at most)\n", model, loadWait)
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("model %s is still being loaded after %v: see the server's log, or try again later",
				model, loadWait)
		case <-time.After(waitPause):
		}
	}
	return nil
}

// loading reports whether a model is being loaded and no version of the model is ready.
func loading(ctx context.Context, cl *client.Client, model string) bool {
	rows, err := cl.Index(ctx)
	if err != nil {
		return false
	}
	loads := false
	for _, r := range rows {
		if r.Name == model && r.State == "READY" {
			return false
		}
		loads = loads || r.Name == model && r.State == "LOADING"
	}
	return loads
}
