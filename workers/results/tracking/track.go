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

// track is one tracked object.
type track struct {
	id     int64 // 0 before enough hits
	hits   int   // boxes in a row, before the track has an id
	seen   time.Duration
	class  int32
	filter [4]filter // centre x and y, width, height
	at     [4]float64
}

func (k *track) begin(b *Box) {
	k.class = b.Class
	for i, v := range b.shape() {
		k.filter[i].begin(v, b.size())
		k.at[i] = v
	}
}

func (k *track) predict(dt float64) {
	size := math.Max(k.at[2], k.at[3])
	for i := range k.filter {
		k.at[i] = k.filter[i].predict(dt, size, i >= 2)
	}
	k.at[2], k.at[3] = math.Max(k.at[2], 1), math.Max(k.at[3], 1)
}

func (k *track) correct(b *Box) {
	for i, v := range b.shape() {
		k.at[i] = k.filter[i].correct(v, b.size())
	}
}

// iou returns the overlap of the prediction and a box: intersection over union.
func (k *track) iou(b *Box) float64 {
	x1, x2 := k.at[0]-k.at[2]/2, k.at[0]+k.at[2]/2
	y1, y2 := k.at[1]-k.at[3]/2, k.at[1]+k.at[3]/2
	w := math.Min(x2, float64(b.X2)) - math.Max(x1, float64(b.X1))
	h := math.Min(y2, float64(b.Y2)) - math.Max(y1, float64(b.Y1))
	if w <= 0 || h <= 0 {
		return 0
	}
	both := w * h
	return both / (k.at[2]*k.at[3] + float64(b.X2-b.X1)*float64(b.Y2-b.Y1) - both)
}
