package apps

import (
	"context"
	"testing"
	"testing/synctest"

	"millrace/internal/routines"
)

// TestAwait: requests for a program that is not ready wait as long as their clients do, and
// share one check, which ends with the last of them.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Adapter{tasks: routines.New(func(string, any, []byte) {}), awaits: map[string]*await{}}
		ctx, cancel := context.WithCancel(t.Context())
		const clients = 50
		ended := make(chan bool, clients)
		wait := func(ctx context.Context) { ended <- a.awaitReady(ctx, "app") }
		for range clients - 1 {
			go wait(ctx)
		}
		last, leave := context.WithCancel(t.Context())
		go wait(last)
		synctest.Wait()
		if n := a.tasks.Counts()["await"]; n != 1 || len(ended) != 0 {
			t.Errorf("%d checks, %d requests have ended", n, len(ended))
		}
		cancel()
		for range clients - 1 {
			if <-ended {
				t.Error("the program is ready")
			}
		}
		if n := a.tasks.Counts()["await"]; n != 1 {
			t.Errorf("%d checks while a client waits", n)
		}
		leave()
		<-ended
		a.tasks.Stop()
		a.tasks.Wait() // for the check, which nobody needs any more
		if len(a.awaits) != 0 {
			t.Errorf("%d programs are waited for", len(a.awaits))
		}
	})
}
