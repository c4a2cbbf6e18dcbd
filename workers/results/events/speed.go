package events

import (
	"math"
	"time"

	"millrace/internal/plane"
	"millrace/stream/rules"
)

// speed is the part of a zone's rule for fast objects.
type speed struct {
	over   float64       // metres a second
	window time.Duration // 0 = no speed
	ground plane.Ground
}

// sample is a place of an object on the ground.
type sample struct {
	moment
	place [2]float64 // metres
}

// samples is how many places of an object are kept for the window of a speed, so that memory does not grow with the
// frames a second.
const samples = 16

// newSpeed returns the speed of a zone of valid rules.
func newSpeed(r *rules.Rules, z *rules.Zone) speed {
	if z.Speed == nil || z.Speed.Over == nil || r.Ground == nil {
		return speed{}
	}
	points, metres, err := r.Ground.Places(r)
	ground, ok := plane.NewGround(points, metres)
	if err != nil || !ok {
		return speed{} // not in valid rules
	}
	return speed{*z.Speed.Over, *z.Speed.For, ground}
}

// follow adds the place of an object in the zone to the object's trail. mean is the distance between the places at the
// begin and the end of the window, by its length: a shaking box is slow. Without found, the trail is shorter than the
// window.
func (s *speed) follow(trail []sample, at plane.Point, now moment) (_ []sample, since moment, mean float64,
	found bool) {
	place, ok := s.ground.At(float64(at.X)/plane.Size, float64(at.Y)/plane.Size)
	if !ok {
		return trail[:0], since, 0, false
	}
	old := 0
	for old+1 < len(trail) && now.clock-trail[old+1].clock >= s.window {
		old++
	}
	trail = append(trail[:0], trail[old:]...)
	if len(trail) > 0 && now.clock-trail[0].clock >= s.window {
		way := math.Hypot(place[0]-trail[0].place[0], place[1]-trail[0].place[1])
		since, mean, found = trail[0].moment, way/(now.clock-trail[0].clock).Seconds(), true
	}
	if n := len(trail); n == 0 || now.clock-trail[n-1].clock >= s.window/samples {
		trail = append(trail, sample{now, place})
	}
	return trail, since, mean, found
}
