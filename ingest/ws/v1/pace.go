package v1

import (
	"math"
	"time"

	"millrace/stream"
)

// pace measures how a stream's frames fare: how many were answered, and how many dropped for want of compute, since it was
// last evaluated. There is no timer: that happens when an ending is written.
type pace struct {
	since       stream.Instant // when it was last evaluated
	statsAt     stream.Instant // when statistics were last sent
	results     int
	drops       uint64
	age         time.Duration // sum over results
	advisedFPS  float64       // frames a second; 0 = no advice stands
	frameSize   [2]int        // width and height of the newest result's frame
	advisedSize [2]int        // of the frames that smaller ones were last asked for
}

// adviseFPS returns the rate that the client should send at: what was answered, when a fifth or more was dropped; a quarter
// more than it was told, when nothing was.
func (p *pace) adviseFPS(rate float64) float64 {
	switch {
	case p.overloaded():
		return max(math.Round(10*rate)/10, 0.1)
	case p.drops == 0 && p.advisedFPS > 0 && rate >= 0.8*p.advisedFPS:
		return math.Round(12.5*p.advisedFPS) / 10
	}
	return p.advisedFPS
}

// overloaded says whether a fifth or more was dropped for want of compute.
func (p *pace) overloaded() bool { return p.drops > 0 && float64(p.drops) >= float64(p.results)/4 }

// smallerSize returns the size in which frames would cost less to send and decode and look the same to the model: of at least
// its picture's size, in the shape of what is sent. 0, 0 when that is less than twice as large as needed.
func smallerSize(sent [2]int, image *stream.ImageSpec) (width, height int) {
	if image == nil || sent[0] < 2*image.Width || sent[1] < 2*image.Height {
		return 0, 0
	}
	scale := max(float64(image.Width)/float64(sent[0]), float64(image.Height)/float64(sent[1]))
	even := func(n int) int { return 2 * int(math.Ceil(float64(n)*scale/2)) }
	return even(sent[0]), even(sent[1])
}
