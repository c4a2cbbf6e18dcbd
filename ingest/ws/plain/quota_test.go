package plain

import (
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/stream"
)

// A camera is closed when its client has more than 5 s of quota to repay, and not for less; only then a refusal is
// counted.
func TestOwes(t *testing.T) {
	for owed, want := range map[time.Duration]bool{0: false, 3 * time.Second: false, 10 * time.Second: true} {
		gate := ingest.NewGate(nil, access.AllowEverybody(access.Quotas{Decode: 0.5, Burst: time.Second}))
		client := gate.TrustedClient(&access.Principal{Key: "one"})
		account, v := client.Core(), &videoPull{puller: &puller{client: client}}
		account.Decoded((owed+time.Second)/2, stream.Now())
		if got := v.owes(); got != want || account.Denied(stream.QuotaDecode) != map[bool]uint64{true: 1}[want] {
			t.Errorf("%v: %v, %d refused", owed, got, account.Denied(stream.QuotaDecode))
		}
	}
	if none := (&videoPull{puller: &puller{}}); none.owes() || !none.awaitQuota(t.Context()) {
		t.Error("a client without an account has a quota")
	}
}

// The times of frames continue after a reopening, and include the time in between.
func TestTimesGoOn(t *testing.T) {
	var of frameTimes
	now := stream.Instant(time.Hour)
	for _, c := range []struct {
		after  time.Duration // since the frame before, or the opening
		opened bool
		us     int64 // of this opening
		want   int64
	}{
		{0, false, 0, 0}, {40 * time.Millisecond, false, 40_000, 40_000},
		{7 * time.Second, true, 0, 7_040_000}, {40 * time.Millisecond, false, 40_000, 7_080_000},
		{5 * time.Second, true, 10_000, 12_090_000},
	} {
		if now = now.Add(c.after); c.opened {
			of.startOpening(now)
		}
		if got := of.of(c.us, now); got != c.want {
			t.Errorf("%d us, at %d: %d, want %d", c.us, now, got, c.want)
		}
	}
}

// Only sources that do not wait for their reader are cameras.
func TestIsCamera(t *testing.T) {
	for url, want := range map[string]bool{"rtsp://a/b": true, "RTSPS://a/b": true, "http://a/b.m3u8": false,
		"https://a/b.mp4": false, "": false} {
		if isCamera(url) != want {
			t.Errorf("%s: %v", url, !want)
		}
	}
}
