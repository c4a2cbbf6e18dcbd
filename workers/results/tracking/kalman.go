package tracking

import "math"

// filter is a Kalman filter for one coordinate of a box, with the state position and
// velocity (R. E. Kalman, "A New Approach to Linear Filtering and Prediction
// Problems", 1960). The process noise is that of the discretised white-noise
// acceleration model (Y. Bar-Shalom, X. R. Li, T. Kirubarajan, "Estimation with
// Applications to Tracking and Navigation", 2001, section 6.2.2).
type filter struct {
	x, v       float64 // pixels, pixels per second
	xx, xv, vv float64 // their covariance
}

// Noise parameters, relative to box size; chosen by trials on rendered and jittered
// clips.
const (
	measurementNoise  = 0.05 // standard deviation of a detector's edge
	initialVelocity   = 4.0  // standard deviation of the velocity of a new track, sizes per second
	accelerationNoise = 3.0  // spectral density of the centre's acceleration, sizes per second^(3/2)
	resizeNoise       = 0.5  // the same for width and height, which change less
)

func (f *filter) begin(x, size float64) {
	r, v := measurementNoise*size, initialVelocity*size
	*f = filter{x: x, xx: r * r, vv: v * v}
}

// predict advances the filter by dt seconds, with q as the spectral density of the acceleration.
func (f *filter) predict(dt, q float64) float64 {
	q *= q
	f.x += f.v * dt
	f.xx += dt*(2*f.xv+dt*f.vv) + q*dt*dt*dt/3
	f.xv += dt*f.vv + q*dt*dt/2
	f.vv += q * dt
	return f.x
}

// correct updates the filter with a measurement z and the measurement's standard deviation r.
func (f *filter) correct(z, r float64) float64 {
	s := f.xx + r*r
	if s <= 0 {
		return f.x
	}
	kx, kv := f.xx/s, f.xv/s
	d := z - f.x
	f.x += kx * d
	f.v += kv * d
	f.vv -= kv * f.xv
	f.xv *= 1 - kx
	f.xx *= 1 - kx
	return f.x
}

// surprise is the squared distance of a measurement from the prediction, on average 1 with the right noise.
func (f *filter) surprise(z, r float64) float64 {
	s := f.xx + r*r
	if s <= 0 {
		return 1
	}
	return (z - f.x) * (z - f.x) / s
}

// Parameters of the ByteTrack kind, chosen by trials on simulated walkers and the same clips.
const (
	newAcceleration              = 1.0       // accelerationNoise of a new track
	leastAcceleration            = 0.3       // after boxes that are where the track expects the boxes
	mostAcceleration, adaptation = 4.0, 0.12 // after other boxes; change of the logarithm by a box
	lowScoreNoise                = 4 * measurementNoise
	lostMargin                   = 0.5 // standard deviations of the place added around a lost track
)

// adapt returns the acceleration noise after a box with the given surprise (Bar-Shalom et al., section 11.2): objects
// with a steady velocity are found again where they must be after an occlusion, and objects that turn are not lost.
func adapt(acceleration, surprise float64) float64 {
	a := acceleration * math.Exp(adaptation*(math.Min(surprise, 4)-1))
	return math.Max(leastAcceleration, math.Min(a, mostAcceleration))
}
