package tracking

import (
	"math"
	"time"
)

// Box is one detection: corners in pixels, score and class.
type Box struct {
	X1, Y1, X2, Y2 float32
	Score          float32
	Class          int32
}

// valid reports whether the numbers are a box.
func (b *Box) valid() bool {
	for _, v := range [...]float32{b.X1, b.Y1, b.X2, b.Y2} {
		if math.IsNaN(float64(v)) || math.Abs(float64(v)) > 1e6 {
			return false
		}
	}
	return b.X2 > b.X1 && b.Y2 > b.Y1
}

// shape returns the centre x and y, the width and the height.
func (b *Box) shape() [4]float64 {
	x1, y1, x2, y2 := float64(b.X1), float64(b.Y1), float64(b.X2), float64(b.Y2)
	return [4]float64{(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1}
}

// size returns the reference length for errors of the box.
func (b *Box) size() float64 { return math.Max(float64(b.X2-b.X1), float64(b.Y2-b.Y1)) }

func (b *Box) area() area {
	x1, y1, x2, y2 := float64(b.X1), float64(b.Y1), float64(b.X2), float64(b.Y2)
	return area{x1, y1, x2, y2, (x2 - x1) * (y2 - y1)}
}

// track is one tracked object.
type track struct {
	id     int64 // 0 before enough hits
	hits   int   // boxes in a row, before the track has an id
	seen   time.Duration
	class  int32
	filter [4]filter // centre x and y, width, height
	at     [4]float64

	// Only of the ByteTrack kind.
	adaptive     bool
	acceleration float64 // noise of the centre's acceleration
	lost         bool    // without a box in the frame before
	last         area    // last box
}

func (k *track) begin(b *Box, adaptive bool) {
	*k = track{class: b.Class, adaptive: adaptive, acceleration: accelerationNoise, last: b.area()}
	if adaptive {
		k.acceleration = newAcceleration
	}
	for i, v := range b.shape() {
		k.filter[i].begin(v, b.size())
		k.at[i] = v
	}
}

func (k *track) predict(dt float64) {
	size := math.Max(k.at[2], k.at[3])
	for i := range k.filter {
		f, q := &k.filter[i], k.acceleration
		if i >= 2 {
			q = resizeNoise
			if k.lost { // a change of the size is often the edge of what covers the object
				f.v = 0
			}
		}
		k.at[i] = f.predict(dt, q*size)
	}
	k.at[2], k.at[3] = math.Max(k.at[2], 1), math.Max(k.at[3], 1)
}

// correct updates the track with a box. A box with a low score is often only a part of the object.
func (k *track) correct(b *Box, low bool) {
	shape, noise := b.shape(), measurementNoise*b.size()
	if k.adaptive {
		if low {
			noise = lowScoreNoise * b.size()
		} else {
			k.acceleration = adapt(k.acceleration,
				(k.filter[0].surprise(shape[0], noise)+k.filter[1].surprise(shape[1], noise))/2)
		}
		k.last = b.area()
	}
	for i, v := range shape {
		k.at[i] = k.filter[i].correct(v, noise)
	}
}

// area returns the predicted box, with a margin while lost.
func (k *track) area() area {
	w, h := k.at[2]/2, k.at[3]/2
	if k.lost {
		w += math.Min(w, lostMargin*math.Sqrt(k.filter[0].xx))
		h += math.Min(h, lostMargin*math.Sqrt(k.filter[1].xx))
	}
	return area{k.at[0] - w, k.at[1] - h, k.at[0] + w, k.at[1] + h, 4 * w * h}
}

// move moves the track with the scene.
func (k *track) move(m *similarity) {
	x, y, size := &k.filter[0], &k.filter[1], math.Hypot(m.a, m.b)
	x.x, y.x = m.of(x.x, y.x)
	x.v, y.v = m.a*x.v-m.b*y.v, m.b*x.v+m.a*y.v
	for i := 2; i < 4; i++ {
		k.filter[i].x *= size
	}
	for i := range k.filter {
		k.at[i] = k.filter[i].x
	}
	k.at[2], k.at[3] = math.Max(k.at[2], 1), math.Max(k.at[3], 1)
	cx, cy := m.of((k.last.x1+k.last.x2)/2, (k.last.y1+k.last.y2)/2)
	w, h := size*(k.last.x2-k.last.x1)/2, size*(k.last.y2-k.last.y1)/2
	k.last = area{cx - w, cy - h, cx + w, cy + h, 4 * w * h}
}
