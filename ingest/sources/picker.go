package sources

import (
	"math"

	"millrace/stream"
)

// picker picks the frames of a subscription with a lower rate than the shared source. Subscription.mu guards a picker.
type picker struct {
	fps    float64 // of the subscription; 0 = all frames
	last   int64   // slot of the newest picked frame, late frames excepted
	late   int64   // slot of the newest picked late frame
	next   float64 // of a source with Info.Arrival: time of the next frame, in µs
	varies bool    // the source has Info.Arrival
}

func newPicker(fps float64) picker { return picker{fps: fps, last: math.MinInt64, late: math.MinInt64} }

// restart begins with the first frame of an opening.
func (p *picker) restart(varies bool) {
	*p = newPicker(p.fps)
	p.varies = varies
}

// pick reports whether the subscription gets a frame. source is the most frames per second of the source, 0 for all.
func (p *picker) pick(source float64, f *stream.Frame) bool {
	switch {
	case p.fps == 0 || p.fps == source:
		return true
	case p.varies: // like ffmpeg, pick takes a frame up to half an interval before its time
		interval := 1e6 / p.fps
		if float64(f.CaptureUS) < p.next-interval/2 {
			return false
		}
		p.next = max(float64(f.CaptureUS), p.next) + interval
		return true
	}
	// The first frame in each slot of 1/FPS seconds, as ffmpeg selects frames. A late frame does not stand for its
	// slot: a late frame may be dropped.
	slot := int64(math.Floor(float64(f.CaptureUS)/1e6*p.fps + 0.01))
	switch {
	case slot <= p.last || f.Late && slot <= p.late:
		return false
	case f.Late:
		p.late = slot
	default:
		p.last = slot
	}
	return true
}
