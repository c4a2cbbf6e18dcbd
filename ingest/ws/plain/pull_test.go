package plain

import (
	"testing"

	"millrace/stream"
)

// A video refused for lack of room takes no room.
func TestRefusedVideosTakeNoRoom(t *testing.T) {
	p := &puller{limits: &PullLimits{Max: 2}}
	p.limits.running.Store(2)
	for range 3 {
		if err := p.start(pullOrder{URL: "rtsp://camera.example/live"}); stream.CodeOf(err) != stream.Overloaded {
			t.Error(err)
		}
		if n := p.limits.running.Load(); n != 2 {
			t.Errorf("%d are counted, want 2", n)
		}
	}
	if err := p.start(pullOrder{URL: "no address"}); stream.CodeOf(err) == stream.Overloaded || err == nil ||
		p.limits.running.Load() != 2 {
		t.Errorf("%v, %d are counted", err, p.limits.running.Load())
	}
	if p.running() || stream.CodeOf(p.stop()) != stream.Conflict {
		t.Error("a video that was refused is running")
	}
	p.close()
}
