package ingest_test

import (
	"testing"

	"millrace/ingest"
	"millrace/stream"
)

func TestClosedError(t *testing.T) {
	for why, want := range map[stream.CloseReason]stream.Code{
		stream.ByUnload: stream.Unloaded, stream.ByDrain: stream.Draining, stream.Idle: stream.Timeout,
		stream.ByError:  stream.Internal,
		stream.ByClient: "", stream.ClientGone: "", stream.SlowConsumer: "", stream.SourceEnded: "",
	} {
		if got := stream.CodeOf(ingest.ClosedError(why, "m")); got != want {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
	}
}
