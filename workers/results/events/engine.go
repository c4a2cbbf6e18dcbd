package events

import (
	"crypto/rand"
	"math"
	"slices"
	"strconv"
	"time"

	"millrace/internal/plane"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

// Object is a tracked object in a frame. The box is in pixels.
type Object struct {
	Track          int64 // objects with the track 0 are ignored
	Class          int32
	Score          float32
	X1, Y1, X2, Y2 float32
}

// Frame has the objects of a frame. A track comes once.
type Frame struct {
	Time          time.Duration // of the source's clock, or since 1970 for a source without times
	Received      time.Duration // by the server's clock, for times that do not advance
	Wall          time.Time     // of the receipt, for counts
	Width, Height int           // pixels of the picture
	Objects       []Object
}

// MaxObjects is the largest number of objects of an Engine, vanished objects not included. Beyond, the object without a
// box for the longest time vanishes.
const MaxObjects = 512

// Engine has the rules and the objects of one stream, for one goroutine at a time.
type Engine struct {
	stream  string // name of the stream, or ""
	run     string // random, the begin of ids
	names   map[int32]string
	tally   *rules.Tally  // counts the events
	heat    *rules.Heat   // nil = not kept
	step    time.Duration // of the clock, to this frame
	rules   *rules.Rules
	margin  float64
	settle  time.Duration
	inertia time.Duration
	age     time.Duration // see Begin
	lines   []line
	zones   []zone
	whens   []when
	pasts   []past // of the events that whens count

	scale   plane.Scale
	now     moment
	highest time.Duration // latest time of a frame
	behind  int           // frames in a row that were not later than highest
	ahead   time.Duration // steps of the clock for these frames
	got     time.Duration // receipt of the last frame
	wall    time.Time     // of the receipt of the last frame
	frame   uint64
	objects []*object // in the order of their first boxes
	byTrack map[int64]*object
	spare   []*object
	ignored uint64
	seq     uint64
	queued  []Event // for the next frame
	events  []Event // of this frame
}

// New returns the engine of a stream. The rules must be valid. stream is a name, or "". tally counts the events.
func New(r *rules.Rules, stream string, tally *rules.Tally) *Engine {
	e := &Engine{stream: stream, tally: tally, run: rand.Text()[:13], names: map[int32]string{},
		byTrack: map[int64]*object{}}
	e.Change(r)
	return e
}

// Continue returns the engine that continues with the counts and the saved events of a stream.
func Continue(r *rules.Rules, stream string, live *rules.Live) *Engine {
	e := New(r, stream, &live.Tally)
	e.heat = live.Heat
	live.Engine = e
	e.Take(live)
	return e
}

// Take puts the saved events of a stream before the events of the next frame.
func (e *Engine) Take(live *rules.Live) {
	if len(live.Events) > 0 {
		e.queued, live.Events = append(live.Events, e.queued...), nil
	}
}

// maxNames bounds the names of classes, and maxName the bytes of a name.
const maxNames, maxName = 4096, 128

// Name names a class. The name may come with each box: later names of a class are ignored.
func (e *Engine) Name(class int32, name []byte) {
	if _, known := e.names[class]; !known && len(name) > 0 && len(e.names) < maxNames {
		e.names[class] = string(name[:min(len(name), maxName)])
	}
}

// label returns the name of a class, or its number.
func (e *Engine) label(class int32) string {
	if name, known := e.names[class]; known {
		return name
	}
	return strconv.Itoa(int(class))
}

// Rules returns the rules.
func (e *Engine) Rules() *rules.Rules { return e.rules }

// Ignored returns how many boxes were ignored because the engine had MaxObjects objects.
func (e *Engine) Ignored() uint64 { return e.ignored }

// Update applies the rules to the next frame. The events are valid until the next call, except their tracks, which are
// never written again.
func (e *Engine) Update(f *Frame) ([]Event, error) {
	if f.Width <= 0 || f.Height <= 0 {
		return nil, coded.Errorf(coded.InvalidArgument, "rules", "need frames with a width and a height in pixels")
	}
	e.advance(f.Time, f.Received)
	e.wall = f.Wall
	e.tally.Begin(f.Wall)
	e.resize(plane.Scale{Width: float64(f.Width), Height: float64(f.Height)})
	e.events = append(e.events[:0], e.queued...)
	e.queued = nil
	for i := range f.Objects {
		if o := &f.Objects[i]; o.Track > 0 && o.valid() {
			e.see(o)
		}
	}
	e.forget()
	for i := range e.zones {
		e.crowd(i)
	}
	for i := range e.whens {
		e.compare(&e.whens[i])
	}
	return e.events, nil
}

const (
	defaultStep = time.Second / 30 // between frames, when no time advances
	minStep     = time.Millisecond // as in the tracker
	maxStep     = time.Hour        // keeps sums within a Duration
	maxBehind   = 10               // frames in a row that are behind before their clock holds
)

// advance moves the clock on. A frame that is not later than all before moves the clock by the time since the receipt
// of the frame before, and a later frame moves the clock by so much less: a clock that goes back and forth does not run
// fast. After maxBehind such frames the source has begun again.
func (e *Engine) advance(at, received time.Duration) {
	got, step := received-e.got, at-e.highest
	e.got = received
	if at > e.highest && (step < 0 || step > maxStep) { // beyond a Duration
		step = maxStep
	}
	switch {
	case e.frame == 0:
		e.highest, step = at, defaultStep
	case at > e.highest && step >= minStep:
		step = max(step-e.ahead, minStep)
		e.highest, e.behind, e.ahead = at, 0, 0
	default:
		if step = min(got, maxStep); step < minStep {
			step = defaultStep
		}
		e.ahead += step
		if e.behind++; e.behind > maxBehind {
			e.highest, e.behind, e.ahead = at, 0, 0
		}
	}
	e.now, e.step = moment{e.now.clock + step, at}, step
	e.frame++
}

// resize follows a change of the picture's size. Places of objects are shares of the picture and stay.
func (e *Engine) resize(s plane.Scale) {
	if s == e.scale {
		return
	}
	e.scale = s
	for i := range e.lines {
		l := &e.lines[i]
		l.left, l.right = s.Room(l.from, l.to)
	}
	for i := range e.zones {
		e.zones[i].breadth = s.Breadth(e.zones[i].polygon)
	}
}

// see applies the rules to the box of an object.
func (e *Engine) see(o *Object) {
	k := e.byTrack[o.Track]
	switch {
	case k == nil:
		if len(e.objects) >= MaxObjects && !e.makeRoom() {
			e.ignored++
			return
		}
		k = e.begin(o)
	case k.frame == e.frame: // the track came before in this frame
		return
	}
	k.see(e, o)
	e.heat.Add(e.wall, (float64(o.X1)+float64(o.X2))/2/e.scale.Width, float64(o.Y2)/e.scale.Height, e.step)
	for i := range e.lines {
		e.lines[i].see(e, k, &k.lines[i])
	}
	for i := range e.zones {
		e.zones[i].see(e, k, &k.zones[i])
	}
}

func (e *Engine) begin(o *Object) *object {
	var k *object
	if n := len(e.spare); n > 0 {
		k, e.spare = e.spare[n-1], e.spare[:n-1]
	} else {
		k = &object{}
	}
	k.begin(o, len(e.lines), len(e.zones), e.now)
	e.objects = append(e.objects, k)
	e.byTrack[k.track] = k
	return k
}

// forget ends the objects without a box for too long. An object with a box in each frame stays, also at few frames a
// second.
func (e *Engine) forget() {
	kept := e.objects[:0]
	for _, k := range e.objects {
		if e.now.clock-k.seen.clock <= max(e.inertia, e.age) {
			kept = append(kept, k)
		} else {
			e.remove(k)
		}
	}
	clear(e.objects[len(kept):])
	e.objects = kept
}

// remove ends an object that is taken from objects.
func (e *Engine) remove(k *object) {
	e.end(k)
	delete(e.byTrack, k.track)
	e.spare = append(e.spare, k)
}

// makeRoom ends the object without a box for the longest time, so that hidden objects leave room for the objects in
// the picture. An object of this frame or the frame before stays.
func (e *Engine) makeRoom() (found bool) {
	oldest := 0
	for i, k := range e.objects {
		if k.frame < e.objects[oldest].frame {
			oldest = i
		}
	}
	if k := e.objects[oldest]; k.frame+1 < e.frame {
		e.objects = slices.Delete(e.objects, oldest, oldest+1)
		e.remove(k)
		return true
	}
	return false
}

// end applies the rules to an object that has vanished. The object does not change.
func (e *Engine) end(k *object) {
	for i := range e.lines {
		e.lines[i].end(e, k, &k.lines[i])
	}
	for i := range e.zones {
		e.zones[i].end(e, k, &k.zones[i])
	}
}

// between calls f, which makes events between two frames, for the next frame.
func (e *Engine) between(f func()) {
	events := e.events
	e.events = e.queued
	f()
	e.queued, e.events = e.events, events
}

// maxRepeated bounds the events of frames without an answer.
const maxRepeated = 1 << 14

// Repeat puts the events of the last Update before the events of the next, with the same ids: the result did not
// arrive. Beyond maxRepeated the earliest events are lost, and their numbers are missing.
func (e *Engine) Repeat() {
	e.queued = append(slices.Clone(e.events), e.queued...)
	e.queued = e.queued[max(len(e.queued)-maxRepeated, 0):]
}

// Vanish ends all objects. The next frame has the events.
func (e *Engine) Vanish() {
	e.between(func() {
		for _, k := range e.objects {
			e.end(k)
		}
	})
	e.objects, e.spare = nil, nil
	clear(e.byTrack)
}

// Finish implements rules.Engine.
func (e *Engine) Finish() (list []Event) {
	e.Vanish()
	list, e.queued = e.queued, nil
	return list
}

// Begin begins with the tracks of another tracker, perhaps of a model with other names of classes. The objects vanish.
// The tracker keeps the id of an object for age without a box: so long the object goes on, also beyond the inertia.
func (e *Engine) Begin(age time.Duration) {
	e.Vanish()
	e.age = age
	clear(e.names)
	for i := range e.pasts {
		e.pasts[i].forgetTracks()
	}
	for i := range e.lines {
		clear(e.lines[i].known)
	}
	for i := range e.zones {
		clear(e.zones[i].known)
	}
}

// Change replaces the rules. A line or zone with the name of a line or zone before goes on with its counts and
// objects. The objects of a zone that has gone leave the zone.
func (e *Engine) Change(r *rules.Rules) {
	filled := setting.Filled(r)
	e.rules, e.margin, e.settle, e.inertia = r, *filled.Margin, *filled.Settle, filled.Inertia
	lines, zones := make([]line, len(r.Lines)), make([]zone, len(r.Zones))
	fromLine, fromZone := make([]int, len(lines)), make([]int, len(zones))
	for i := range lines {
		lines[i] = newLine(r, &r.Lines[i])
		fromLine[i] = slices.IndexFunc(e.lines, func(l line) bool { return l.name == lines[i].name })
	}
	for i := range zones {
		zones[i] = newZone(r, &filled.Zones[i])
		fromZone[i] = slices.IndexFunc(e.zones, func(z zone) bool { return z.name == zones[i].name })
		if j := fromZone[i]; j >= 0 {
			z, from := &zones[i], &e.zones[j]
			z.now, z.many, z.since, z.told = from.now, from.many, from.since, from.told
		}
	}
	e.between(func() {
		for j := range e.zones {
			if slices.Contains(fromZone, j) {
				continue
			}
			for _, k := range e.objects {
				if st := &k.zones[j]; st.inside {
					e.zones[j].leave(e, k, st, k.seen)
				}
			}
		}
	})
	for _, k := range e.objects {
		crossings, states := make([]lineState, len(lines)), make([]zoneState, len(zones))
		for i, j := range fromLine {
			if j >= 0 && lines[i].same(&e.lines[j]) {
				crossings[i] = k.lines[j]
			}
		}
		for i, j := range fromZone {
			if j < 0 {
				continue
			}
			states[i] = k.zones[j]
			states[i].new = states[i].new && zones[i].appear
			if zones[i].speed != e.zones[j].speed {
				states[i].fast = false
			}
			if zones[i].speed != e.zones[j].speed || zones[i].anchor != e.zones[j].anchor {
				states[i].trail = nil
			}
			if !zones[i].same(&e.zones[j]) { // the object is in the zone until the next frame
				states[i].in, states[i].since = states[i].inside, e.now
			}
		}
		k.lines, k.zones = crossings, states
	}
	e.spare = nil
	e.whens, e.pasts = e.newWhens(r)
	e.lines, e.zones = lines, zones
	e.tally.Keep(r)
	e.scale = plane.Scale{}
}

// valid reports whether the numbers are a box.
func (o *Object) valid() bool {
	for _, v := range [...]float32{o.X1, o.Y1, o.X2, o.Y2} {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return o.X2 >= o.X1 && o.Y2 >= o.Y1
}
