package tracking

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Wrong clocks.
var (
	stands = func(int, time.Duration, *rand.Rand) time.Duration { return time.Second }
	twice  = func(i int, _ time.Duration, _ *rand.Rand) time.Duration { return time.Duration(i/2) * time.Second / 15 }
	loops  = func(_ int, at time.Duration, _ *rand.Rand) time.Duration { return at % (2 * time.Second) }
	uneven = func(_ int, at time.Duration, rng *rand.Rand) time.Duration {
		return at + time.Duration(rng.Float64()*float64(30*time.Millisecond))
	}
)

const seeds = 5

// The bounds are about one and a half times the measured values, to detect mistakes, not slightly worse results.
func TestIDsStay(t *testing.T) {
	usual := detector{miss: 0.05, falsely: 0.1, shake: 0.05}
	with := func(change func(d *detector)) detector {
		d := usual
		change(&d)
		return d
	}
	poor := func(d *detector) { d.miss, d.falsely = 0.2, 0.5 }
	clip := func(uint64) []moment { return clipMoments(t) }
	t.Logf("%-32s %7s %7s %6s %8s %5s %5s %6s", "", "boxes", "named", "MOTA", "switches", "swaps", "frag", "false")
	for _, s := range []struct {
		name     string
		detector detector
		moments  func(seed uint64) []moment
		config   Config
		switches int     // at most
		accuracy float64 // at least
	}{
		{"clip, 30 fps, as it is", detector{}, clip, Config{}, 0, 0.99},
		{"clip, 30 fps", usual, clip, Config{}, 5, 0.93},
		{"clip, 30 fps, poor", with(poor), clip, Config{}, 20, 0.77},
		{"clip, 30 fps, half dropped", with(func(d *detector) { d.drop = 0.5 }), clip, Config{}, 75, 0.9},
		{"clip, 30 fps, 80 % dropped", with(func(d *detector) { d.drop = 0.8 }), clip, Config{}, 260, 0.7},
		{"clip, 10 fps", with(func(d *detector) { d.every = 3 }), clip, Config{}, 55, 0.9},
		{"clip, 10 fps, poor", with(func(d *detector) { poor(d); d.every = 3 }), clip, Config{}, 115, 0.7},
		{"clip, 5 fps", with(func(d *detector) { d.every = 6 }), clip, Config{}, 180, 0.62},
		{"clip, clock stands", with(func(d *detector) { d.clock = stands }), clip, Config{}, 5, 0.93},
		{"clip, every time twice", with(func(d *detector) { d.clock = twice }), clip, Config{}, 5, 0.93},
		{"clip, clock loops", with(func(d *detector) { d.clock = loops }), clip, Config{}, 5, 0.93},
		{"clip, clock late by 0..30 ms", with(func(d *detector) { d.clock = uneven }), clip, Config{}, 5, 0.93},
		{"crossing, 30 fps", usual, crossingMoments, Config{}, 25, 0.9},
		{"crossing, 10 fps", with(func(d *detector) { d.every = 3 }), crossingMoments, Config{}, 45, 0.75},
		{"crossing, 30 fps, half dropped", with(func(d *detector) {
			d.drop = 0.5
		}), crossingMoments, Config{}, 40, 0.88},
		{"crossing, 30 fps, same class", usual, crossingMoments, Config{SameClass: true}, 8, 0.9},
		{"crowd, 30 fps", usual, crowdMoments, Config{}, 170, 0.92},
		{"crowd, 10 fps", with(func(d *detector) { d.every = 3 }), crowdMoments, Config{}, 210, 0.9},
		{"crowd, 30 fps, same class", usual, crowdMoments, Config{SameClass: true}, 85, 0.92},
	} {
		var y tally
		for seed := range uint64(seeds) {
			y.add(s.config, s.detector.detect(s.moments(seed), seed))
		}
		t.Logf("%-32s %7d %5.1f %% %6.3f %8d %5d %5d %6d", s.name, y.boxes, 100*float64(y.named)/float64(y.boxes),
			y.accuracy(), y.switches, y.swaps, y.fragments, y.falsely)
		if y.switches > s.switches || y.accuracy() < s.accuracy {
			t.Errorf("%s: %d switches, at most %d expected; MOTA %.3f, at least %.3f expected", s.name, y.switches,
				s.switches, y.accuracy(), s.accuracy)
		}
	}
}

// A least score for new tracks keeps false boxes from getting ids. Objects with a low score lose few ids, because
// existing tracks continue.
func TestScoreBegins(t *testing.T) {
	var all, sure tally
	for seed := range uint64(seeds) {
		frames := detector{miss: 0.03, falsely: 2, shake: 0.05, dips: 0.03, least: 0.1}.detect(crossingMoments(seed),
			seed)
		all.add(Config{}, frames)
		sure.add(Config{Score: 0.5}, frames)
	}
	t.Logf("any box begins a track: %d false ids, MOTA %.3f; with a least score of 0.5: %d, %.3f", all.falsely,
		all.accuracy(), sure.falsely, sure.accuracy())
	if sure.falsely*2 > all.falsely || sure.accuracy() < all.accuracy() {
		t.Error("a least score does not reduce false ids")
	}
}
