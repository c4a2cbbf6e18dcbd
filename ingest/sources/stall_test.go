package sources_test

import (
	"testing"
	"time"

	"millrace/ingest/sources"
)

// The stall time-out covers the longest silence of a video with its settings: between two key frames, up to 30 s for
// a camera, and between two frames at a low rate.
func TestStallTimeoutFollowsTheSettings(t *testing.T) {
	for _, tt := range []struct {
		video sources.Video
		fps   float64
		least time.Duration
	}{
		{sources.Video{}, 0, 10 * time.Second},
		{sources.Video{Decode: "key"}, 0, 31 * time.Second},
		{sources.Video{}, 0.1, 25 * time.Second},
		{sources.Video{}, 0.001, 2000 * time.Second},
		{sources.Video{Decode: "key"}, 0.1, 45 * time.Second},
	} {
		if got := tt.video.StallTimeoutForTest(tt.fps); got < tt.least {
			t.Errorf("%+v at %v frames a second: %v, want at least %v", tt.video, tt.fps, got, tt.least)
		}
	}
}
