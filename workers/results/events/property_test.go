package events

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/stream/rules"
)

// The property test moves random tracks over random lines and polygons, and compares the events with events computed
// afterwards from the whole path of each track, in fractions.

const (
	wide, high = 1024, 512
	unit       = 256 // the smallest step is a pixel by unit, exact in a float32
)

// sighting is a box of a track, after the film.
type sighting struct {
	frame int
	clock time.Duration
	at    time.Duration
	x, y  *big.Rat // shares of the picture, with the shift of moving points
	px    [2]float64
	size  float64
}

type randomFilm struct {
	rng    *rand.Rand
	frames []Frame
	clocks []time.Duration
}

// coordinate returns a random multiple of a step that is the same for most numbers of a film, so that objects often
// move exactly over ends and corners.
func coordinate(rng *rand.Rand, coarse int, size int) float64 {
	if rng.IntN(4) > 0 {
		return float64(rng.IntN(coarse+1)) * float64(size) / float64(coarse)
	}
	return float64(rng.IntN(size*unit+1)) / unit
}

func newRandomFilm(rng *rand.Rand, coarse int) *randomFilm {
	f := &randomFilm{rng: rng}
	at, clock := time.Duration(rng.IntN(1e9)), time.Duration(0)
	highest, behind := time.Duration(math.MinInt64/2), 0
	places := make([][2]float64, 3)
	for i := range places {
		places[i] = [2]float64{coordinate(rng, coarse, wide), coordinate(rng, coarse, high)}
	}
	for range 60 {
		switch rng.IntN(20) {
		case 0: // stands still
		case 1:
			at -= time.Duration(rng.IntN(3e9))
		case 2:
			at += time.Duration(rng.IntN(3e9))
		default:
			at += 100 * time.Millisecond
		}
		at = at.Truncate(time.Microsecond)
		const step = time.Second / 30
		switch gone := at - highest; {
		case len(f.frames) == 0:
			clock, highest = step, at
		case gone >= time.Millisecond: // the frames that were behind have taken a step each
			clock += max(gone-time.Duration(behind)*step, time.Millisecond)
			highest, behind = at, 0
		default:
			clock += step
			if behind++; behind == 11 {
				highest, behind = at, 0
			}
		}
		frame := Frame{Time: at, Width: wide, Height: high}
		for track := range places {
			p := &places[track]
			switch rng.IntN(4) {
			case 0: // jumps
				*p = [2]float64{coordinate(rng, coarse, wide), coordinate(rng, coarse, high)}
			case 1: // shakes
				p[0] = min(max(p[0]+float64(rng.IntN(9)-4), 0), wide)
				p[1] = min(max(p[1]+float64(rng.IntN(9)-4), 0), high)
			case 2: // not seen
				continue
			}
			half := float32(2 * (1 + rng.IntN(40)))
			x, y := float32(p[0]), float32(p[1])
			frame.Objects = append(frame.Objects, Object{Track: int64(track + 1), Class: int32(track), Score: 1,
				X1: x - half, Y1: y - half, X2: x + half, Y2: y + half})
		}
		f.frames, f.clocks = append(f.frames, frame), append(f.clocks, clock)
	}
	return f
}

func tiny(bits uint) *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), bits))
}

func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

// share returns pixels as a share of the picture. A moving point on the right or lower edge is moved into the picture.
func share(px float64, size int, moving bool) *big.Rat {
	r := new(big.Rat).SetFloat64(px)
	r.Quo(r, big.NewRat(int64(size), 1))
	if moving && r.Cmp(big.NewRat(1, 1)) >= 0 {
		r = sub(big.NewRat(1, 1), tiny(24))
	}
	return r
}

// lives returns the sightings of a track, cut where the track was forgotten.
func (f *randomFilm) lives(track int64, inertia time.Duration) (lives [][]sighting) {
	var life []sighting
	for i, frame := range f.frames {
		k := slices.IndexFunc(frame.Objects, func(o Object) bool { return o.Track == track })
		if k < 0 {
			if n := len(life); n > 0 && f.clocks[i]-life[n-1].clock > inertia {
				lives, life = append(lives, life), nil
			}
			continue
		}
		o := frame.Objects[k]
		x, y := float64(o.X1+o.X2)/2, float64(o.Y1+o.Y2)/2
		life = append(life, sighting{i, f.clocks[i], frame.Time, add(share(x, wide, true), tiny(100)),
			add(share(y, high, true), tiny(250)), [2]float64{x, y}, float64(o.X2 - o.X1)})
	}
	return append(lives, life) // the last life, perhaps empty, has not ended
}

type ratPoint struct{ x, y *big.Rat }

func pointOf(r *rules.Rules, p []float64) ratPoint {
	return ratPoint{share(p[0], wide, false), share(p[1], high, false)}
}

// meets returns 1 for a move over the line from a to b to its right, -1 for a move to its left, and 0 beside the line.
func meets(a, b, p, q ratPoint) int {
	dx, dy, ex, ey := sub(b.x, a.x), sub(b.y, a.y), sub(q.x, p.x), sub(q.y, p.y)
	det := sub(mul(dx, ey), mul(dy, ex))
	if det.Sign() == 0 {
		return 0
	}
	fx, fy := sub(p.x, a.x), sub(p.y, a.y)
	for _, part := range []*big.Rat{sub(mul(fx, ey), mul(fy, ex)), sub(mul(fx, dy), mul(fy, dx))} {
		if part.Quo(part, det); part.Sign() < 0 || part.Cmp(big.NewRat(1, 1)) > 0 {
			return 0
		}
	}
	return det.Sign()
}

// near returns the pixels from a point to a line, by the angles at its ends.
func near(a, b, p []float64) float64 {
	ap, bp := math.Hypot(p[0]-a[0], p[1]-a[1]), math.Hypot(p[0]-b[0], p[1]-b[1])
	ab := math.Hypot(b[0]-a[0], b[1]-a[1])
	if ap*ap >= bp*bp+ab*ab || bp*bp >= ap*ap+ab*ab {
		return min(ap, bp)
	}
	return math.Abs((b[0]-a[0])*(p[1]-a[1])-(b[1]-a[1])*(p[0]-a[0])) / ab
}

type expectation struct {
	events []string
	clocks []time.Duration  // of the frames
	inside map[string][]int // objects in each zone, by frame
	unsure bool             // a distance is so near to the margin that rounding decides
}

func (x *expectation) reaches(distance, margin float64) bool {
	if math.Abs(distance-margin) < 1e-3 && margin > 0 {
		x.unsure = true
	}
	return distance >= margin
}

func (x *expectation) say(kind rules.EventType, rule, direction string, track int64, start, end time.Duration) {
	x.events = append(x.events, fmt.Sprint(kind, " ", rule, " ", direction, " ", track, " ", start.Microseconds(), " ",
		end.Microseconds()))
}

// stay adds an object to a zone from one frame until another.
func (x *expectation) stay(zone string, from, until int) {
	if x.inside[zone] == nil {
		x.inside[zone] = make([]int, len(x.clocks))
	}
	for i := from; i < until; i++ {
		x.inside[zone][i]++
	}
}

// counts compares the numbers of objects in a zone with the rule's number.
func (x *expectation) counts(z *rules.Zone, film *randomFilm) {
	since, told := -1, false
	for i, n := range x.inside[z.Name] {
		switch {
		case n <= *z.Count.Over:
			since, told = -1, false
			continue
		case since < 0:
			since = i
		}
		if !told && x.clocks[i]-x.clocks[since] >= z.Count.For {
			told = true
			x.say(rules.CountEvent, z.Name, fmt.Sprint(n), 0, film.frames[since].Time, film.frames[i].Time)
		}
	}
}

func (x *expectation) line(r *rules.Rules, l *rules.Line, track int64, life []sighting, ended bool) {
	a, b := pointOf(r, l.From), pointOf(r, l.To)
	room := [2]float64{} // left, right
	ab := math.Hypot(l.To[0]-l.From[0], l.To[1]-l.From[1])
	for _, c := range [][]float64{{0, 0}, {wide, 0}, {0, high}, {wide, high}} {
		d := ((l.To[0]-l.From[0])*(c[1]-l.From[1]) - (l.To[1]-l.From[1])*(c[0]-l.From[0])) / ab
		room[0], room[1] = max(room[0], -d), max(room[1], d)
	}
	net, start := 0, time.Duration(0)
	tell := func(end time.Duration) {
		x.say(rules.CrossEvent, l.Name, map[int]string{1: rules.In, -1: rules.Out}[net], track, start, end)
		net = 0
	}
	for i, s := range life {
		if i > 0 {
			if c := meets(a, b, ratPoint{life[i-1].x, life[i-1].y}, ratPoint{s.x, s.y}); c != 0 && c != net {
				net, start = net+c, s.at
			}
		}
		if net != 0 && x.reaches(near(l.From, l.To, s.px[:]), min(*r.Margin*s.size, room[(net+1)/2]/2)) {
			tell(s.at)
		}
	}
	if net != 0 && ended {
		tell(life[len(life)-1].at)
	}
}

func (x *expectation) zone(r *rules.Rules, z *rules.Zone, track int64, life []sighting, ended bool) {
	n := len(z.Polygon)
	area, edges := 0.0, 0.0
	for i, p := range z.Polygon {
		q := z.Polygon[(i+1)%n]
		area, edges = area+(p[0]*q[1]-p[1]*q[0])/2, edges+math.Hypot(q[0]-p[0], q[1]-p[1])
	}
	var state, dwelt bool
	var run, entered, begun int
	inside := make([]bool, len(life))
	for i, s := range life {
		out, odd := ratPoint{big.NewRat(-7, 1), big.NewRat(-3, 1)}, false
		least := math.Inf(1)
		for k, p := range z.Polygon {
			q := z.Polygon[(k+1)%n]
			if meets(pointOf(r, p), pointOf(r, q), out, ratPoint{s.x, s.y}) != 0 {
				odd = !odd
			}
			border := p[0] == q[0] && (p[0] == 0 || p[0] == wide) || p[1] == q[1] && (p[1] == 0 || p[1] == high)
			if !border {
				least = min(least, near(p, q, s.px[:]))
			}
		}
		inside[i] = odd
		if i > 0 && inside[i-1] != odd {
			run = i
		}
		margin := *r.Margin * s.size
		if odd {
			margin = min(margin, math.Abs(area)/edges/2)
		}
		settled := s.clock-life[run].clock >= *r.Settle
		switch {
		case state == odd || !settled && !x.reaches(least, margin):
		case odd:
			state, dwelt, entered, begun = true, false, run, s.frame
			x.say(rules.EnterEvent, z.Name, "", track, life[run].at, s.at)
		default:
			state = false
			x.stay(z.Name, begun, s.frame)
			x.say(rules.LeaveEvent, z.Name, "", track, life[entered].at, life[run].at)
		}
		if i == 0 && odd && z.Appear {
			x.say(rules.AppearEvent, z.Name, "", track, s.at, s.at)
		}
		if state && odd && z.Dwell > 0 && !dwelt && s.clock-life[entered].clock >= z.Dwell {
			dwelt = true
			x.say(rules.DwellEvent, z.Name, "", track, life[entered].at, s.at)
		}
	}
	if !ended {
		if state {
			x.stay(z.Name, begun, len(x.clocks))
		}
		return
	}
	last := life[len(life)-1]
	if state {
		end := last.frame
		for x.clocks[end]-last.clock <= r.Inertia {
			end++
		}
		x.stay(z.Name, begun, end)
	}
	if inside[len(life)-1] && z.Vanish {
		x.say(rules.VanishEvent, z.Name, "", track, life[0].at, last.at)
	}
	if !state && inside[len(life)-1] {
		entered = run
		x.say(rules.EnterEvent, z.Name, "", track, life[run].at, last.at)
		x.say(rules.LeaveEvent, z.Name, "", track, life[run].at, last.at)
	} else if state && inside[len(life)-1] {
		x.say(rules.LeaveEvent, z.Name, "", track, life[entered].at, last.at)
	} else if state {
		x.say(rules.LeaveEvent, z.Name, "", track, life[entered].at, life[run].at)
	}
}

func randomRules(rng *rand.Rand, coarse int) *rules.Rules {
	margin := []float64{0, 0, 0.1, 1}[rng.IntN(4)]
	settle := []time.Duration{0, 300 * time.Millisecond, time.Hour}[rng.IntN(3)]
	r := &rules.Rules{Width: wide, Height: high, Margin: &margin, Settle: &settle,
		Inertia: time.Duration(1+rng.IntN(1000)) * time.Millisecond}
	point := func() []float64 {
		return []float64{coordinate(rng, coarse, wide), coordinate(rng, coarse, high)}
	}
	for len(r.Lines)+len(r.Zones) < 4 {
		next := *r
		if name := fmt.Sprint("n", len(r.Lines)+len(r.Zones)); rng.IntN(2) == 0 {
			next.Lines = append(slices.Clone(r.Lines), rules.Line{Name: name, From: point(), To: point(),
				Filter: rules.Filter{Anchor: rules.Center}})
		} else {
			over := rng.IntN(2)
			z := rules.Zone{Name: name, Filter: rules.Filter{Anchor: rules.Center},
				Dwell: time.Duration(rng.IntN(3)) * 300 * time.Millisecond, Appear: rng.IntN(2) == 0,
				Vanish: rng.IntN(2) == 0, Count: &rules.Count{Over: &over,
					For: time.Duration(rng.IntN(2)) * 200 * time.Millisecond}}
			if rng.IntN(4) == 0 {
				z.Classes = []string{"0", "2"}
			}
			for range 3 + rng.IntN(4) {
				z.Polygon = append(z.Polygon, point())
			}
			next.Zones = append(slices.Clone(r.Zones), z)
		}
		if next.Validate() == nil {
			*r = next
		}
	}
	return r
}

func TestEventsEqualTheEventsOfWholePaths(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 31))
		coarse := []int{4, 8, 64}[rng.IntN(3)]
		r, film := randomRules(rng, coarse), newRandomFilm(rng, coarse)
		want := expectation{clocks: film.clocks, inside: map[string][]int{}}
		for track := range int64(3) {
			lives := film.lives(track+1, r.Inertia)
			for i, life := range lives {
				if len(life) == 0 {
					continue
				}
				for k := range r.Lines {
					want.line(r, &r.Lines[k], track+1, life, i < len(lives)-1)
				}
				for k := range r.Zones {
					if c := r.Zones[k].Classes; c == nil || slices.Contains(c, fmt.Sprint(track)) {
						want.zone(r, &r.Zones[k], track+1, life, i < len(lives)-1)
					}
				}
			}
		}
		for k := range r.Zones {
			want.counts(&r.Zones[k], film)
		}
		if want.unsure {
			seen["unsure"]++
			continue
		}
		var got expectation
		e, balance := New(r, "", new(rules.Tally)), map[string]int{}
		for i := range film.frames {
			found, err := e.Update(&film.frames[i])
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				if v.Type == rules.CountEvent {
					v.Direction, v.Tracks = fmt.Sprint(len(v.Tracks)), []int64{0}
				}
				got.say(v.Type, v.Rule, v.Direction, v.Tracks[0], time.Duration(v.Start)*time.Microsecond,
					time.Duration(v.End)*time.Microsecond)
				seen[strings.TrimRight(string(v.Type)+v.Direction, "0123456789")]++
				balance[v.Rule] += map[rules.EventType]int{rules.EnterEvent: 1, rules.LeaveEvent: -1}[v.Type]
			}
		}
		slices.Sort(got.events)
		slices.Sort(want.events)
		if !slices.Equal(got.events, want.events) {
			text, _ := json.Marshal(r)
			t.Fatalf("seed %d: rules %s\nevents %q\nwant   %q", seed, text, got.events, want.events)
		}
		for _, z := range counted(e).Zones {
			now := 0
			for _, v := range z.Classes {
				now += v.Now
			}
			if now != balance[z.Name] {
				t.Fatalf("seed %d: %d objects in %s, enters without leaves %d", seed, now, z.Name, balance[z.Name])
			}
		}
	}
	for kind, least := range map[string]int{"crossin": 80, "crossout": 80, "enter": 80, "leave": 80, "dwell": 10,
		"appear": 5, "vanish": 5, "count": 10} {
		if seen[kind] < least {
			t.Errorf("%s came %d times", kind, seen[kind])
		}
	}
	t.Logf("seen: %v", seen)
}
