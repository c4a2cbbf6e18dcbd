package sources_test

import (
	"testing"
	"time"

	"millrace/ingest/sources"
)

// A video may be silent for as long as its settings make it: between two key frames,
// of which a camera may send one every 30 s, and between two frames of a low rate.
func TestStallTimeoutFollowsTheSettings(t *testing.T) {
	for _, tt := range []struct {
		video sources.Video
		fps   float64
		least time.Duration
	}{
		{sources.Video{}, 0, 10 * time.Second},
		{sources.Video{KeyFrames: "only"}, 0, 31 * time.Second},
		{sources.Video{}, 0.1, 25 * time.Second},
		{sources.Video{}, 0.001, 2000 * time.Second},
		{sources.Video{KeyFrames: "only"}, 0.1, 45 * time.Second},
	} {
		if got := tt.video.StallTimeoutForTest(tt.fps); got < tt.least {
			t.Errorf("%+v at %v frames a second: %v, want at least %v", tt.video, tt.fps, got, tt.least)
		}
	}
}
