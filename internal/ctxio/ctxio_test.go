package ctxio

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleep: Sleep takes the time asked for, and ends early with the context.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if !Sleep(ctx, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("a sleep of 1 s took %v", time.Since(begun))
		}
		if !Sleep(ctx, 0) || !Sleep(ctx, -time.Second) || time.Since(begun) != time.Second {
			t.Errorf("sleeps of no time ended after %v", time.Since(begun))
		}
		if Sleep(ctx, time.Minute) || time.Since(begun) != 3*time.Second {
			t.Errorf("the sleep with a context ended after %v, want 3 s", time.Since(begun))
		}
		if Sleep(ctx, 0) || Sleep(ctx, time.Second) || time.Since(begun) != 3*time.Second {
			t.Error("a sleep with an ended context reports true, or takes time")
		}
	})
}
