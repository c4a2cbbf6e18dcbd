package tracking

import (
	"fmt"
	"testing"
	"time"

	"millrace/internal/clip/truth"
)

// walkers is the street of most sequences: pillars are added.
func walkers(change func(s *street)) street {
	s := street{walkers: 10, speed: [2]float64{60, 160}, fps: 30, seconds: 15, ghosts: 1, miss: 0.02}
	if change != nil {
		change(&s)
	}
	return s
}

// sequences returns a street with two seeds.
func (s street) sequences() (all [][]streetFrame) {
	for seed := range uint64(2) { // other seeds than in the trials that chose the parameters
		all = append(all, s.frames(100+seed))
	}
	return all
}

// clipSequences are the boxes of a poor detector on the example's clip.
func clipSequences(t *testing.T, every int) (all [][]streetFrame) {
	d := detector{every: every, miss: 0.05, falsely: 0.1, shake: 0.05, dips: 0.03}
	for seed := range uint64(2) {
		var fs []streetFrame
		for _, s := range d.detect(clipMoments(t), 100+seed) {
			f := streetFrame{at: s.at, boxes: s.boxes}
			for _, o := range s.things {
				f.objects = append(f.objects, named{o.id, o.box})
			}
			fs = append(fs, f)
		}
		all = append(all, fs)
	}
	return all
}

// The kinds of tracker on sequences, measured as in the MOT challenges. ByteTrack is compared with iou as it is, and
// with iou with ByteTrack's score and age.
func TestKinds(t *testing.T) {
	narrow, wide := pillars(5, 70), pillars(3, 220)
	walls := []truth.Box{{0, 200, streetWidth, 260}, {0, 420, streetWidth, 500}}
	configs := []Config{{}, {Score: 0.5, MaxAge: time.Second}, {Kind: ByteTrack}}
	row := func(name string, m []measures) {
		text := fmt.Sprintf("%-24s", name)
		for i := range m {
			text += fmt.Sprintf("   %6.3f %.3f %.3f %4d", m[i].MOTA, m[i].IDF1, m[i].HOTA, m[i].Switches)
		}
		t.Log(text)
	}
	t.Logf("%-24s   %-24s   %-24s   %-24s", "", "iou", "iou, score 0.5, age 1s", "bytetrack")
	t.Logf("%-24s   %-24[2]s   %-24[2]s   %-24[2]s", "", "  MOTA IDF1  HOTA  switch")
	occlusions := make([]measures, len(configs))
	short := func(change func(s *street)) [][]streetFrame {
		return walkers(func(s *street) {
			s.across, s.pillars = true, narrow
			change(s)
		}).sequences()
	}
	for _, s := range []struct {
		name     string
		frames   [][]streetFrame
		identity float64 // least IDF1 of ByteTrack, about 0.05 below the measured value
		occluded bool    // one of the occlusion set
	}{
		{"open street", walkers(nil).sequences(), 0.92, false},
		{"short occlusions", short(func(*street) {}), 0.7, true},
		{"partial occlusions", short(func(s *street) { s.pillars = pillars(6, 40) }), 0.9, true},
		{"half covered", walkers(func(s *street) { s.pillars = walls }).sequences(), 0.87, true},
		{"crossings in lanes", walkers(func(s *street) { s.lanes, s.walkers = 4, 16 }).sequences(), 0.9, true},
		{"long occlusions", short(func(s *street) { s.pillars = wide }), 0.22, false},
		{"crowd of 50", walkers(func(s *street) { s.walkers, s.seconds = 50, 8 }).sequences(), 0.87, false},
		{"short, 15 fps", short(func(s *street) { s.fps = 15 }), 0.78, false},
		{"short, 10 fps", short(func(s *street) { s.fps = 10 }), 0.84, false},
		{"short, 5 fps", short(func(s *street) { s.fps = 5 }), 0.69, false},
		{"short, half dropped", short(func(s *street) { s.drop = 0.5 }), 0.8, false},
		{"shaking camera", walkers(func(s *street) { s.shake = 12 }).sequences(), 0.38, false},
		{"clip of digits", clipSequences(t, 1), 0.9, false},
		{"clip of digits, 10 fps", clipSequences(t, 3), 0.78, false},
		{"clip of digits, 5 fps", clipSequences(t, 6), 0.5, false},
	} {
		m := make([]measures, len(configs))
		for i, c := range configs {
			for _, frames := range s.frames {
				f := run(c, frames)
				m[i].add(f)
				if s.occluded {
					occlusions[i].add(f)
				}
			}
		}
		row(s.name, m)
		if m[2].IDF1 < s.identity {
			t.Errorf("%s: IDF1 of bytetrack is %.3f, at least %.2f expected", s.name, m[2].IDF1, s.identity)
		}
	}
	m := occlusions
	row("the four occlusion rows", m)
	if m[2].IDF1 < m[0].IDF1+0.1 || m[2].IDF1 < m[1].IDF1+0.1 {
		t.Error("bytetrack keeps ids through occlusions hardly better than iou")
	}
}
