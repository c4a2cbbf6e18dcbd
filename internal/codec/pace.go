package codec

import (
	"sync/atomic"
	"time"
)

// Pace slows the decoding of a picture down while others wait for processors. PNG and JPEG are paced between rows, JPEG of several
// scans between rows of a scan too, others that Go decodes between two reads of their bytes, and other WebP not at all.
type Pace struct {
	Others *atomic.Uint32 // not 0 = others wait
	Slice  time.Duration  // of decoding, between two looks at Others
	Pause  time.Duration  // after a slice while others wait

	since time.Time // of the slice
}

// step is called often. It pauses if that is due, and returns for how long it has.
func (p *Pace) step() time.Duration {
	now := time.Now()
	if now.Sub(p.since) < p.Slice {
		return 0
	}
	if p.Others.Load() != 0 {
		time.Sleep(p.Pause)
	}
	p.since = time.Now()
	return p.since.Sub(now)
}

// pause is step, after which the picture has as much longer as it took. d.Pace may be nil.
func (d *Decoder) pause() {
	if d.Pace == nil {
		return
	}
	if took := d.Pace.step(); !d.deadline.IsZero() {
		d.deadline = d.deadline.Add(took)
	}
}
