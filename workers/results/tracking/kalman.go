package tracking

// filter is a Kalman filter for one coordinate of a box: its place and velocity,
// where the velocity is moved by white noise (R. E. Kalman 1960; the process
// noise is that of the discretised constant-velocity model, Bar-Shalom, Li and
// Kirubarajan 2001, 6.2.2).
type filter struct {
	x, v       float64 // pixels, pixels a second
	xx, xv, vv float64 // their covariance
}

// How sure one is of what, in sizes of the box: taken by trying on rendered and
// jittered clips.
const (
	measured  = 0.05 // standard deviation of a detector's edge
	atFirst   = 4.0  // of the velocity of something new, sizes a second
	pushed    = 3.0  // spectral density of accelerations, sizes a second to the 3/2
	stretched = 0.5  // the same for width and height, which change less
)

func (f *filter) begin(x, size float64) {
	r, v := measured*size, atFirst*size
	*f = filter{x: x, xx: r * r, vv: v * v}
}

// predict moves the filter dt seconds on.
func (f *filter) predict(dt, size float64, side bool) float64 {
	q := pushed * size
	if side {
		q = stretched * size
	}
	q *= q
	f.x += f.v * dt
	f.xx += dt*(2*f.xv+dt*f.vv) + q*dt*dt*dt/3
	f.xv += dt*f.vv + q*dt*dt/2
	f.vv += q * dt
	return f.x
}

// correct takes a measurement in.
func (f *filter) correct(z, size float64) float64 {
	r := measured * size
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
