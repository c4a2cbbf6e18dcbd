package tracking

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Config says how boxes are followed. A zero field takes its default. Configs
// are comparable with ==.
type Config struct {
	IoU     float64       // least overlap of a prediction and its box; 0.2
	MinHits int           // boxes in a row until a track has an id; 2
	MaxAge  time.Duration // a track without a box for longer ends; 500ms
}

// MaxTracks bounds the tracks of one stream, and the boxes of a frame that are
// looked at: the first ones. What is more gets no id.
const MaxTracks = 256

// Validate names the first field that is out of bounds.
func (c Config) Validate() error {
	switch {
	case !(c.IoU >= 0 && c.IoU < 1):
		return fmt.Errorf("iou: %v is not between 0 and 1", c.IoU)
	case c.MinHits < 0 || c.MinHits > 100:
		return fmt.Errorf("min_hits: %d is not between 1 and 100", c.MinHits)
	case c.MaxAge < 0 || c.MaxAge > time.Hour:
		return fmt.Errorf("max_age: %v is not between 0s and 1h", c.MaxAge)
	}
	return nil
}

// Box is one detection, in pixels. What it is called does not count: a class may
// flicker where a thing does not.
type Box struct {
	X1, Y1, X2, Y2 float32
}

// Tracker follows the boxes of one stream. It is for one goroutine at a time.
type Tracker struct {
	conf   Config
	last   time.Duration
	begun  bool
	next   int64
	tracks []*track
	spare  []*track
	ids    []int64
	match  matcher
}

// New returns a tracker. The config must be valid.
func New(c Config) *Tracker {
	c.IoU = cmp.Or(c.IoU, 0.2)
	c.MinHits = cmp.Or(c.MinHits, 2)
	c.MaxAge = cmp.Or(c.MaxAge, 500*time.Millisecond)
	return &Tracker{conf: c, next: 1}
}

// track is one thing.
type track struct {
	id     int64 // 0 until it has been seen often enough
	hits   int   // boxes in a row, until it has an id
	seen   time.Duration
	filter [4]filter // centre x and y, width, height
	at     [4]float64
}

// Update takes the boxes of the next frame, captured at the given moment of the
// stream's clock, and returns an id for each: 0 for what is not sure yet. Ids
// begin at 1 and are never given twice. The result is valid until the next call.
// A clock that stands still or jumps back counts as standing still.
func (t *Tracker) Update(at time.Duration, boxes []Box) []int64 {
	step := at - t.last
	if !t.begun || step < 0 {
		step = 0
	}
	t.begun, t.last = true, at
	dt := min(step.Seconds(), 10)
	for _, k := range t.tracks {
		k.predict(dt)
		if step == 0 && at < k.seen {
			k.seen = at
		}
	}
	t.ids = t.ids[:0]
	for range boxes {
		t.ids = append(t.ids, 0)
	}
	boxes = boxes[:min(len(boxes), MaxTracks)] // the assignment's time grows with their cube
	assigned := t.match.assign(t.tracks, boxes, t.conf.IoU)
	for b, k := range assigned {
		switch {
		case !boxes[b].sound():
		case k >= 0:
			t.ids[b] = t.hit(t.tracks[k], &boxes[b], at)
		case len(t.tracks) < MaxTracks:
			k := t.begin(&boxes[b], at)
			t.ids[b] = k.id
		}
	}
	t.end(at)
	return t.ids
}

func (t *Tracker) hit(k *track, b *Box, at time.Duration) int64 {
	k.correct(b)
	k.seen = at
	if k.id == 0 {
		if k.hits++; k.hits >= t.conf.MinHits {
			k.id = t.next
			t.next++
		}
	}
	return k.id
}

func (t *Tracker) begin(b *Box, at time.Duration) *track {
	var k *track
	if n := len(t.spare); n > 0 {
		k, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		k = &track{}
	}
	*k = track{seen: at, hits: 1}
	for i, v := range b.shape() {
		k.filter[i].begin(v, b.size())
		k.at[i] = v
	}
	if t.conf.MinHits <= 1 {
		k.id = t.next
		t.next++
	}
	t.tracks = append(t.tracks, k)
	return k
}

// end drops the tracks that were not seen for too long; one without an id that
// misses a single frame was a false alarm.
func (t *Tracker) end(at time.Duration) {
	kept := t.tracks[:0]
	for _, k := range t.tracks {
		if k.seen == at || k.id != 0 && at-k.seen <= t.conf.MaxAge {
			kept = append(kept, k)
		} else {
			t.spare = append(t.spare, k)
		}
	}
	clear(t.tracks[len(kept):])
	t.tracks = kept
}

// sound says whether the numbers are a box at all.
func (b *Box) sound() bool {
	for _, v := range [...]float32{b.X1, b.Y1, b.X2, b.Y2} {
		if math.IsNaN(float64(v)) || math.Abs(float64(v)) > 1e6 {
			return false
		}
	}
	return b.X2 > b.X1 && b.Y2 > b.Y1
}

func (b *Box) shape() [4]float64 {
	x1, y1, x2, y2 := float64(b.X1), float64(b.Y1), float64(b.X2), float64(b.Y2)
	return [4]float64{(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1}
}

// size is the length that errors of the box are measured in.
func (b *Box) size() float64 { return math.Max(float64(b.X2-b.X1), float64(b.Y2-b.Y1)) }

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

// iou is the overlap of the prediction and a box: intersection over union.
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
