package tracking

import "time"

// Tracker tracks the boxes of one stream, for one goroutine at a time.
type Tracker struct {
	conf   Config
	last   time.Duration // of the stream's clock
	now    time.Duration // of a monotonic clock
	before time.Duration // now of the frame before
	next   int64
	tracks []*track
	spare  []*track
	ids    []int64
	match  matcher
	scene  *scene // with Config.Camera
}

// New returns a tracker. The config must be valid.
func New(c Config) *Tracker {
	return &Tracker{conf: c.withDefaults(), next: 1}
}

// Reset ends all tracks. Ids continue, so that no id is given twice.
func (t *Tracker) Reset() {
	t.spare = append(t.spare, t.tracks...)
	clear(t.tracks)
	t.tracks = t.tracks[:0]
}

// Update takes the boxes of the next frame, captured at the given time of the stream's
// clock, and returns an id for each: 0 for a track that is not confirmed, or an invalid
// box. Ids begin at 1 and are never given twice. The result is valid until the next
// call. Where the clock does not advance or goes back, 1/30 s is assumed to have
// passed; after a gap of 10 s all tracks are new.
func (t *Tracker) Update(at time.Duration, boxes []Box) []int64 {
	t.advance(at)
	t.ids = t.ids[:0]
	for range boxes {
		t.ids = append(t.ids, 0)
	}
	boxes = boxes[:min(len(boxes), t.conf.Max)]
	t.assign(boxes)
	for b, k := range t.match.trackOf {
		switch box := &boxes[b]; {
		case !box.valid():
		case k >= 0:
			t.ids[b] = t.continueTrack(t.tracks[k], box)
		case box.Score >= float32(t.conf.Score) && len(t.tracks) < t.conf.Max:
			t.ids[b] = t.beginTrack(box)
		}
	}
	t.dropUnseen()
	return t.ids
}

const (
	defaultStep = time.Second / 30 // from frame to frame, when the clock does not advance
	minStep     = time.Millisecond // frames at shorter intervals were delayed and sent together
	maxGap      = 10 * time.Second // all tracks end after maxGap
)

// advance predicts all tracks at the time of the next frame.
func (t *Tracker) advance(at time.Duration) {
	step := defaultStep
	if at > t.last {
		if step = at - t.last; step < 0 || step >= maxGap { // beyond a Duration
			step = maxGap
			t.Reset()
		} else if step < minStep {
			step = defaultStep
		}
	}
	t.last = at
	if t.scene != nil {
		if m := t.scene.take(); m != still {
			for _, k := range t.tracks {
				k.move(&m)
			}
		}
	}
	t.before = t.now
	t.now += step
	for _, k := range t.tracks {
		k.lost = k.adaptive && k.seen != t.before
		k.predict(step.Seconds())
	}
}

// assign finds the track of each box.
func (t *Tracker) assign(boxes []Box) {
	c, m := &t.conf, &t.match
	m.begin(len(t.tracks), len(boxes))
	r := round{score: float32(c.Score), high: true, named: true, least: c.IoU, sameClass: c.SameClass}
	if c.Kind != ByteTrack {
		r.low, r.unnamed = true, true
		m.assign(t.tracks, boxes, &r)
		return
	}
	m.assign(t.tracks, boxes, &r)
	low := r // a lost track does not continue with a low score: the box may be a part of another object
	low.high, low.low, low.since = false, true, t.before
	m.assign(t.tracks, boxes, &low)
	turned := r
	turned.last = true
	m.assign(t.tracks, boxes, &turned)
	r.named, r.unnamed = false, true
	m.assign(t.tracks, boxes, &r)
}

func (t *Tracker) continueTrack(k *track, b *Box) int64 {
	k.correct(b, !(b.Score >= float32(t.conf.Score)))
	return t.countHit(k)
}

func (t *Tracker) beginTrack(b *Box) int64 {
	var k *track
	if n := len(t.spare); n > 0 {
		k, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		k = &track{}
	}
	k.begin(b, t.conf.Kind == ByteTrack)
	t.tracks = append(t.tracks, k)
	return t.countHit(k)
}

// countHit counts a box for the track, and returns the track's id.
func (t *Tracker) countHit(k *track) int64 {
	k.seen = t.now
	if k.id == 0 {
		if k.hits++; k.hits >= t.conf.MinHits {
			k.id = t.next
			t.next++
		}
	}
	return k.id
}

// dropUnseen drops the tracks without a box for too long. A track without an id that misses a single frame was a
// false detection.
func (t *Tracker) dropUnseen() {
	kept := t.tracks[:0]
	for _, k := range t.tracks {
		if k.seen == t.now || k.id != 0 && t.now-k.seen <= t.conf.MaxAge {
			kept = append(kept, k)
		} else {
			t.spare = append(t.spare, k)
		}
	}
	clear(t.tracks[len(kept):])
	t.tracks = kept
}
