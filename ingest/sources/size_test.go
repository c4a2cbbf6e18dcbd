package sources_test

import (
	"fmt"
	"testing"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

// Frames of a shared source have the size needed by its subscriptions, while subscriptions begin, end and change
// their needs. The source is opened once, and results stay in the source's pixels.
func TestSizesOfASharedSource(t *testing.T) {
	h := hub(t)
	in := sources.Input{Address: "exec:ffmpeg -nostdin -v error -re -f lavfi -i testsrc2=size=320x240:rate=50 -c:v " +
		"mpeg2video -f mpegts -"}
	last := make(chan string, 1)
	frame := func(f stream.Frame) {
		if s := fmt.Sprintf("%dx%d", f.SourceWidth, f.SourceHeight); s != "320x240" &&
			(s != "0x0" || f.Width != 320 || f.Height != 240) {
			t.Errorf("a frame of %d x %d was scaled from %s", f.Width, f.Height, s)
		}
		select {
		case <-last:
		default:
		}
		last <- fmt.Sprintf("%dx%d", f.Width, f.Height)
		f.Lease.Release()
	}
	a := subscribe(t, h, in, sources.Options{Frame: frame})
	until := func(size string) {
		t.Helper()
		for range 1000 {
			if <-last == size {
				return
			}
		}
		t.Fatalf("no frame of %s", size)
	}
	until("320x240")
	a.Resize([]video.TargetSize{{Width: 64, Height: 48}})
	until("64x48")
	for range 3 {
		b := subscribe(t, h, in, sources.Options{}) // without a need: gets whole pictures
		until("320x240")
		b.Resize([]video.TargetSize{{Width: 32, Height: 96}})
		until("64x96")
		b.leave()
		until("64x48")
	}
	if n := a.Status().Restarts; n != 0 {
		t.Errorf("the source was opened %d times again", n)
	}
	if i := a.Status().Info; i.Width != 320 || i.Height != 240 {
		t.Errorf("the source is %d x %d", i.Width, i.Height)
	}
}
