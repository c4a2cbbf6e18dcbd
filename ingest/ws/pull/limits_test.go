package pull

import (
	"testing"

	"millrace/stream"
)

// A video refused for lack of room takes no room.
func TestRefusedVideosTakeNoRoom(t *testing.T) {
	p := &Puller{Limits: &Limits{Max: 2}}
	p.Limits.running.Store(2)
	for range 3 {
		if err := p.Start(Order{URL: "rtsp://camera.example/live"}); stream.CodeOf(err) != stream.Overloaded {
			t.Error(err)
		}
		if n := p.Limits.running.Load(); n != 2 {
			t.Errorf("%d are counted, want 2", n)
		}
	}
	if err := p.Start(Order{URL: "no address"}); stream.CodeOf(err) == stream.Overloaded || err == nil ||
		p.Limits.running.Load() != 2 {
		t.Errorf("%v, %d are counted", err, p.Limits.running.Load())
	}
	if p.Running() || stream.CodeOf(p.Stop()) != stream.Conflict {
		t.Error("a video that was refused is running")
	}
	p.Close()
}
