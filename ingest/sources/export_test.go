package sources

import (
	"cmp"
	"context"
	"time"

	"millrace/internal/video"
)

// OpenLimitForTest returns the method enter of an openLimit with so many places.
func OpenLimitForTest(places int) func(context.Context) (leave func(), err error) {
	return make(openLimit, places).enter
}

const OpenHold = openHold

// KeyForTest returns the key shared by the inputs of a shared source.
func (i Input) KeyForTest() string { return i.key() }

// StallTimeoutForTest returns how long Next waits for a frame.
func (c *Video) StallTimeoutForTest(fps float64) time.Duration {
	return cmp.Or(c.options("rtsp://127.0.0.1:9/live", Env{FPS: fps}).StallTimeout, video.DefaultStallTimeout)
}

// RemoveForTest takes the first step of ending a subscription to a shared source. Another goroutine takes the next
// step.
func (h *Hub) RemoveForTest(s *Subscription) { h.open[s.in.key()].remove(s) }
