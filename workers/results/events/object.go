package events

import (
	"slices"
	"strconv"
	"time"

	"millrace/internal/plane"
	"millrace/stream/rules"
)

// object is a tracked object.
type object struct {
	track  int64
	frame  uint64 // of the last box
	first  moment // of the first box
	seen   moment // of the last box
	class  int32  // most frequent class
	votes  int    // boxes with the class, less boxes with other classes
	score  float32
	size   float64              // longer side of the last box, in pixels
	at     [anchors]plane.Point // places by anchor
	before [anchors]plane.Point // places in the frame before; at the first box the same places
	lines  []lineState
	zones  []zoneState
}

// The indexes of anchors.
const (
	bottomCenter = iota
	center
	topCenter
	leftCenter
	rightCenter
	anchors
)

func anchorOf(a rules.Anchor) int {
	switch a {
	case rules.Center:
		return center
	case rules.TopCenter:
		return topCenter
	case rules.LeftCenter:
		return leftCenter
	case rules.RightCenter:
		return rightCenter
	}
	return bottomCenter
}

func (k *object) begin(o *Object, lines, zones int, now moment) {
	*k = object{track: o.Track, first: now, class: o.Class,
		lines: append(k.lines[:0], make([]lineState, lines)...),
		zones: append(k.zones[:0], make([]zoneState, zones)...)}
}

// maxVotes bounds the boxes that another class needs to become the class of an object.
const maxVotes = 300

// see takes the next box of the object.
func (k *object) see(e *Engine, o *Object) {
	switch {
	case o.Class == k.class:
		k.votes = min(k.votes+1, maxVotes)
	case k.votes > 0:
		k.votes--
	default:
		k.class, k.votes = o.Class, 1
	}
	if o.Score > k.score { // not for a score that is not a number
		k.score = o.Score
	}
	x1, y1, x2, y2 := float64(o.X1), float64(o.Y1), float64(o.X2), float64(o.Y2)
	k.size = max(x2-x1, y2-y1)
	k.before = k.at
	x, y := (x1+x2)/2, (y1+y2)/2
	for i, p := range [anchors][2]float64{{x, y2}, {x, y}, {x, y1}, {x1, y}, {x2, y}} {
		k.at[i] = plane.Moving(p[0]/e.scale.Width, p[1]/e.scale.Height)
	}
	if k.frame == 0 {
		k.before = k.at
	}
	k.frame, k.seen = e.frame, e.now
}

// filter says which objects count.
type filter struct {
	classes []string
	score   float32
	age     time.Duration
	anchor  int
	known   map[int32]bool // classes already compared
}

// maxKnown bounds the remembered classes.
const maxKnown = 1024

func newFilter(f *rules.Filter) filter {
	return filter{f.Classes, float32(f.Score), f.Age, anchorOf(f.Anchor), map[int32]bool{}}
}

// allows reports whether an object counts, as of its last box.
func (f *filter) allows(e *Engine, k *object) bool {
	if !(k.score >= f.score) || k.seen.clock-k.first.clock < f.age {
		return false
	}
	if len(f.classes) == 0 {
		return true
	}
	allowed, known := f.known[k.class]
	if !known {
		allowed = f.names(e, k.class)
		if len(f.known) < maxKnown {
			f.known[k.class] = allowed
		}
	}
	return allowed
}

// names reports whether the label or the number of a class is in the list.
func (f *filter) names(e *Engine, class int32) bool {
	return slices.Contains(f.classes, e.label(class)) || slices.Contains(f.classes, strconv.Itoa(int(class)))
}
