package tracking

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

// predict advances the filter by dt seconds; side means a filter of a width or height.
func (f *filter) predict(dt, size float64, side bool) float64 {
	q := accelerationNoise * size
	if side {
		q = resizeNoise * size
	}
	q *= q
	f.x += f.v * dt
	f.xx += dt*(2*f.xv+dt*f.vv) + q*dt*dt*dt/3
	f.xv += dt*f.vv + q*dt*dt/2
	f.vv += q * dt
	return f.x
}

// correct updates the filter with a measurement z.
func (f *filter) correct(z, size float64) float64 {
	r := measurementNoise * size
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
