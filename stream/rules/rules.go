// Package rules describes rules over the tracked objects of a stream: lines to cross, and zones to be in. The package
// owns the form of rules and the checks without a picture or an object. Package workers/results/events applies rules.
package rules

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"millrace/internal/plane"
	"millrace/internal/setting"
	"millrace/stream/coded"
)

// Bounds of the rules of one stream.
const (
	MaxRules   = 64 // lines, zones and conditions
	MaxPoints  = 64 // of a polygon
	MaxClasses = 64 // named by one rule
)

// Rules are the rules of one stream. The zero value has no rules. Rules in use never change.
type Rules struct {
	// Width and Height, both or none, are the size of the picture for points in pixels.
	Width  int `json:"width" min:"1" max:"65536" unset:"points are shares of the picture, from 0 to 1" advanced:"yes" example:"1280" help:"points are pixels of a picture of this width"`
	Height int `json:"height" min:"1" max:"65536" unset:"points are shares of the picture, from 0 to 1" advanced:"yes" example:"720" help:"points are pixels of a picture of this height"`

	Margin  *float64       `json:"margin" default:"0.1" min:"0" max:"1" advanced:"yes" help:"distance from a line or an edge that makes a crossing certain: share of the longer side of the object's box"`
	Settle  *time.Duration `json:"settle" default:"2s" min:"0s" max:"1h" advanced:"yes" help:"time on the other side of a zone's edge that makes the crossing certain without the distance"`
	Inertia time.Duration  `json:"inertia" default:"1s" max:"1h" advanced:"yes" help:"longest time without a box before an object has vanished"`

	Ground *Ground `json:"ground"`

	Lines []Line `json:"lines" advanced:"yes" help:"lines to cross"`
	Zones []Zone `json:"zones" advanced:"yes" help:"zones to be in"`
	When  []When `json:"when" advanced:"yes" help:"conditions over several lines and zones"`
}

// Filter says which objects a rule counts, and which point of a box is the object's place.
type Filter struct {
	Classes []string      `json:"classes" unset:"all" example:"person" help:"labels or numbers of the classes that count"`
	Score   float64       `json:"score" min:"0" max:"1" unset:"any" example:"0.6" help:"an object counts from the first box with this score on"`
	Age     time.Duration `json:"age" max:"1h" unset:"any" example:"1s" help:"an object counts from this time after its first box on"`
	Anchor  Anchor        `json:"anchor" unset:"bottom_center" help:"point of the box that is the object's place"`
}

// Line counts the objects that cross the line: in is a move from the left of the line to its right, seen from From
// towards To on the screen.
type Line struct {
	Name   string    `json:"name" form:"name" example:"door" help:"name of the line"`
	From   []float64 `json:"from" example:"0.5, 0" help:"first end of the line: x, y, with y down"`
	To     []float64 `json:"to" example:"0.5, 1" help:"other end of the line; in is from the left to the right, seen from the first end"`
	Filter `json:",inline"`
}

// Zone counts the objects that enter and leave a polygon.
type Zone struct {
	Name    string        `json:"name" form:"name" example:"yard" help:"name of the zone"`
	Polygon [][]float64   `json:"polygon" example:"[[0, 0.5], [1, 0.5], [1, 1], [0, 1]]" help:"corners of the zone: a list of x, y, with y down"`
	Dwell   time.Duration `json:"dwell" max:"24h" unset:"no event" example:"30s" help:"an event when an object has been in the zone for this time"`
	Count   *Count        `json:"count"`
	Appear  bool          `json:"appear" help:"an event when an object is first seen in the zone"`
	Vanish  bool          `json:"vanish" help:"an event when an object is last seen in the zone"`
	Speed   *Speed        `json:"speed"`
	Filter  `json:",inline"`
}

// Count makes an event of many objects in a zone.
type Count struct {
	Over *int          `json:"over" min:"0" max:"10000" example:"3" help:"an event when more objects than this are in the zone"`
	For  time.Duration `json:"for" max:"24h" unset:"at once" example:"10s" help:"time with too many objects before the event"`
}

// Ground gives places on a flat ground, for speeds, to the points of the picture.
type Ground struct {
	Points [][]float64 `json:"points" advanced:"yes" example:"[[0.4, 0.5], [0.6, 0.5], [0.9, 1], [0.1, 1]]" help:"four points of the picture on flat ground, no three on a line: a list of x, y"`
	Metres [][]float64 `json:"metres" advanced:"yes" example:"[[0, 30], [3.5, 30], [3.5, 0], [0, 0]]" help:"the places of the four points on the ground, in metres: a list of x, y"`
}

// Speed makes an event of an object that moves fast.
type Speed struct {
	Over *float64       `json:"over" min:"0.1" max:"1000" example:"13.9" help:"an event when an object in the zone is faster, in metres a second: needs ground"`
	For  *time.Duration `json:"for" default:"1s" min:"100ms" max:"1m" example:"1s" help:"time whose mean speed counts: the way between the places at its begin and its end"`
}

// When makes an event when conditions over lines and zones hold together.
type When struct {
	Name   string        `json:"name" form:"name" example:"unattended" help:"name of the condition"`
	If     string        `json:"if" example:"now(yard) > 2 and in(door) == 0" help:"comparisons joined by and: now(ZONE) = objects in a zone; in(LINE), out(LINE), enter(ZONE), leave(ZONE) = events within the time within"`
	Within time.Duration `json:"within" max:"1h" unset:"only for now" example:"10s" help:"time for which events count"`
	For    time.Duration `json:"for" max:"24h" unset:"at once" example:"30s" help:"time for which the conditions hold before the event"`
}

// Anchor is a point of a box.
type Anchor string

// The anchors.
const (
	BottomCenter Anchor = "bottom_center" // the default
	Center       Anchor = "center"
	TopCenter    Anchor = "top_center"
	LeftCenter   Anchor = "left_center"
	RightCenter  Anchor = "right_center"
)

// Words implements the tag words of package setting.
func (Anchor) Words() []string {
	return []string{string(BottomCenter), string(Center), string(TopCenter), string(LeftCenter), string(RightCenter)}
}

// Empty reports whether there are no lines and no zones.
func (r *Rules) Empty() bool { return r == nil || len(r.Lines)+len(r.Zones) == 0 }

// Parse reads rules from the object of a JSON text. The errors name the fields within the object.
func Parse(text []byte) (*Rules, error) {
	r := new(Rules)
	if err := setting.TableOf("", r).SetJSON(text, setting.Field.SetAny); err != nil {
		return nil, err
	}
	return r, r.Validate()
}

// MarshalJSON writes the values that are set, in the form of Parse.
func (r *Rules) MarshalJSON() ([]byte, error) { return json.Marshal(setting.TableOf("", r).Object()) }

// Validate returns all errors, each with the path of the field within the rules.
func (r *Rules) Validate() error {
	if n := len(r.Lines) + len(r.Zones) + len(r.When); n > MaxRules {
		at := "when"
		switch {
		case len(r.Lines) > MaxRules:
			at = "lines"
		case len(r.Lines)+len(r.Zones) > MaxRules:
			at = "zones"
		}
		return coded.Errorf(coded.TooLarge, at, "make %d rules with the others: want at most %d lines, zones and "+
			"conditions", n, MaxRules)
	}
	errs := setting.TableOf("", r).Check()
	if (r.Width == 0) != (r.Height == 0) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, "width",
			"is given without height, or height without width: give both, or none for shares of the picture"))
		return setting.Join(errs...)
	}
	set := r.Margin != nil || r.Settle != nil || r.Inertia != 0 || r.Width != 0 || r.Ground != nil
	if set && r.Empty() {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, "lines", "and zones are empty: give one, or no rules"))
	}
	if r.Ground != nil {
		if err := r.checkGround(); err != nil {
			errs = append(errs, setting.Split(coded.PrefixField("ground", err))...)
		}
	}
	names := map[string]string{}
	add := func(at, name string, f *Filter, own error) {
		for _, err := range setting.Split(setting.Join(checkName(names, at, name), f.check(), own)) {
			errs = append(errs, coded.PrefixField(at, err))
		}
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		add(fmt.Sprintf("lines[%d]", i), l.Name, &l.Filter, r.checkLine(l))
	}
	for i := range r.Zones {
		z := &r.Zones[i]
		add(fmt.Sprintf("zones[%d]", i), z.Name, &z.Filter, r.checkZone(z))
	}
	for i := range r.When {
		w := &r.When[i]
		add(fmt.Sprintf("when[%d]", i), w.Name, &Filter{}, r.checkWhen(w))
	}
	return setting.Join(errs...)
}

func bad(field, format string, args ...any) error {
	return coded.Errorf(coded.InvalidArgument, field, format, args...)
}

// checkName returns an error for a rule without a name, or with the name of an earlier rule. names has the earlier
// rules by name.
func checkName(names map[string]string, at, name string) error {
	if name == "" {
		return bad("name", "is missing: want a name for the events and counts")
	}
	if earlier := names[name]; earlier != "" {
		return bad("name", "%q is the name of %s, too: want different names of lines, zones and conditions", name,
			earlier)
	}
	names[name] = at
	return nil
}

func (f *Filter) check() error {
	if len(f.Classes) > MaxClasses {
		return bad("classes", "has %d classes: want at most %d", len(f.Classes), MaxClasses)
	}
	for i, c := range f.Classes {
		if c == "" || len(c) > 128 {
			return bad("classes", "has an empty class or a class of more than 128 bytes: want labels or numbers")
		}
		if slices.Contains(f.Classes[:i], c) {
			return bad("classes", "has %q twice", c)
		}
	}
	return nil
}

// CheckClasses returns an error about the first class of a rule that none of some models has. The models have the names
// known, by number; nil = the classes of a model are unknown, empty = the classes have numbers only.
func (r *Rules) CheckClasses(known ...[]string) error {
	if r == nil || slices.ContainsFunc(known, func(k []string) bool { return k == nil }) {
		return nil
	}
	has := func(class string) bool {
		return slices.ContainsFunc(known, func(k []string) bool {
			n, err := strconv.Atoi(class)
			return err == nil && n >= 0 && (n < len(k) || len(k) == 0) || slices.Contains(k, class)
		})
	}
	check := func(rule string, i int, f *Filter) error {
		for _, c := range f.Classes {
			names := slices.Concat(known...)
			switch {
			case has(c):
			case len(names) == 0:
				return bad(fmt.Sprintf("%s[%d].classes", rule, i), "%.140q is a name, and the model's classes have "+
					"numbers only: want numbers, or set output.labels of the model", c)
			default:
				return bad(fmt.Sprintf("%s[%d].classes", rule, i), "%.140q is no class of the model%s: want labels or "+
					"numbers of the model's %d classes, such as %.140q", c, setting.Suggest(c, names), len(names),
					names[0])
			}
		}
		return nil
	}
	for i := range r.Lines {
		if err := check("lines", i, &r.Lines[i].Filter); err != nil {
			return err
		}
	}
	for i := range r.Zones {
		if err := check("zones", i, &r.Zones[i].Filter); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rules) checkLine(l *Line) error {
	from, err := r.point("from", l.From)
	to, err2 := r.point("to", l.To)
	if err == nil && err2 == nil && from == to {
		return bad("to", "is the same point as from: want another point")
	}
	if err == nil && err2 == nil && plane.OnBorder(from, to) {
		return bad("to", "and from are on the same edge of the picture, which nothing crosses: move the line inwards")
	}
	return setting.Join(err, err2)
}

func (r *Rules) checkZone(z *Zone) error {
	var errs []error
	if z.Count != nil && z.Count.Over == nil {
		errs = append(errs, bad("count.over", "is missing: want a number of objects"))
	}
	switch {
	case z.Speed == nil:
	case z.Speed.Over == nil:
		errs = append(errs, bad("speed.over", "is missing: want metres a second"))
	case r.Ground == nil:
		errs = append(errs, bad("speed", "needs ground: give four points of the picture and their places in metres"))
	}
	n := len(z.Polygon)
	if n < 3 || n > MaxPoints {
		return setting.Join(append(errs, bad("polygon", "has %d points: want 3 to %d", n, MaxPoints))...)
	}
	points := make([]plane.Point, n)
	for i, p := range z.Polygon {
		at, err := r.point(fmt.Sprintf("polygon[%d]", i), p)
		if err != nil {
			errs = append(errs, err)
		}
		points[i] = at
	}
	if len(errs) > 0 {
		return setting.Join(errs...)
	}
	for i := range points {
		if next := (i + 1) % n; points[i] == points[next] && next == 0 {
			return bad(fmt.Sprintf("polygon[%d]", i), "repeats the first point: leave it out")
		} else if points[i] == points[next] {
			return bad(fmt.Sprintf("polygon[%d]", next), "repeats the point before: leave it out")
		}
	}
	if i, j, found := plane.Touching(points); found {
		return bad("polygon", "touches itself: the edge after point %d and the edge after point %d cross or meet", i, j)
	}
	return nil
}

// point returns a point on the grid, or an error.
func (r *Rules) point(field string, p []float64) (none plane.Point, err error) {
	if len(p) == 0 {
		return none, bad(field, "is missing: want x and y")
	}
	if len(p) != 2 {
		return none, bad(field, "has %d numbers: want x and y", len(p))
	}
	limits := [...]int{max(r.Width, 1), max(r.Height, 1)}
	for i, v := range p {
		switch {
		case v >= 0 && v <= float64(limits[i]):
		case r.Width != 0:
			return none, bad(field, "(%v, %v) is outside of the picture of %d x %d pixels", p[0], p[1], r.Width,
				r.Height)
		default:
			return none, bad(field, "(%v, %v) is outside of the picture, from 0 to 1: for pixels, set width and height",
				p[0], p[1])
		}
	}
	return plane.Fixed(r.Share(p)), nil
}

// Share returns a point of the rules in shares of the picture's width and height.
func (r *Rules) Share(p []float64) (x, y float64) {
	return p[0] / math.Max(float64(r.Width), 1), p[1] / math.Max(float64(r.Height), 1)
}

// farthest is the largest distance of a place of Ground, in metres.
const farthest = 1e6

// Places returns the points in shares of the picture, and the places in metres. The errors name the fields within
// ground.
func (g *Ground) Places(r *Rules) (points, metres [4][2]float64, err error) {
	var errs []error
	if n := len(g.Points); n != len(points) {
		errs = append(errs, bad("points", "has %d points: want four", n))
	}
	if n := len(g.Metres); n != len(metres) {
		errs = append(errs, bad("metres", "has %d points: want four", n))
	}
	for i, p := range g.Points[:min(len(g.Points), len(points))] {
		if _, err := r.point(fmt.Sprintf("points[%d]", i), p); err != nil {
			errs = append(errs, err)
			continue
		}
		points[i][0], points[i][1] = r.Share(p)
	}
	for i, p := range g.Metres[:min(len(g.Metres), len(metres))] {
		field := fmt.Sprintf("metres[%d]", i)
		switch {
		case len(p) != 2:
			errs = append(errs, bad(field, "has %d numbers: want x and y", len(p)))
		case !(max(math.Abs(p[0]), math.Abs(p[1])) <= farthest):
			errs = append(errs, bad(field, "(%v, %v) is more than %.0f metres away", p[0], p[1], farthest))
		default:
			metres[i] = [2]float64(p)
		}
	}
	return points, metres, setting.Join(errs...)
}

func (r *Rules) checkGround() error {
	points, metres, err := r.Ground.Places(r)
	if err != nil {
		return err
	}
	if _, ok := plane.NewGround(points, metres); !ok {
		return bad("points", "and metres fit no flat ground: three are nearly on a line, or the order differs")
	}
	return nil
}
