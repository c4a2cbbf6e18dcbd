package v1

import (
	"math"
	"time"

	"millrace/stream"
)

// rateAdvisor counts a stream's answered frames, and frames dropped because the model was too slow, since the last
// evaluation. rateAdvisor has no timer: writing an ending evaluates rateAdvisor.
type rateAdvisor struct {
	since       stream.Instant // time of the last evaluation
	statsAt     stream.Instant // when statistics were last sent
	results     int
	drops       uint64
	age         time.Duration // sum over results
	advisedFPS  float64       // frames per second; 0 = no advice
	frameSize   [2]int        // width and height of the newest result's frame
	advisedSize [2]int        // size of the frames at the last advice of a smaller size
}

// adviseFPS returns the rate at which the client should send: the rate of answers, when at least a fifth of the
// frames was dropped; a quarter above the rate advised before, when no frame was dropped.
func (p *rateAdvisor) adviseFPS(rate float64) float64 {
	switch {
	case p.overloaded():
		return max(math.Round(10*rate)/10, 0.1)
	case p.drops == 0 && rate >= 0.8*p.advisedFPS:
		return math.Round(12.5*p.advisedFPS) / 10
	}
	return p.advisedFPS
}

// overloaded reports whether a fifth or more of the frames was dropped because the
// model was too slow.
func (p *rateAdvisor) overloaded() bool {
	return p.drops > 0 && float64(p.drops) >= float64(p.results)/4
}

// smallerSize returns a frame size cheaper to send and decode, without a difference to the model: at least the size
// of the model's picture, with the proportions of the sent frames. smallerSize returns 0, 0 when the size exceeds
// half of the sent size.
func smallerSize(sent [2]int, image *stream.ImageSpec) (width, height int) {
	if image == nil || sent[0] < 2*image.Width || sent[1] < 2*image.Height {
		return 0, 0
	}
	scale := max(float64(image.Width)/float64(sent[0]), float64(image.Height)/float64(sent[1]))
	even := func(n int) int { return 2 * int(math.Ceil(float64(n)*scale/2)) }
	return even(sent[0]), even(sent[1])
}
