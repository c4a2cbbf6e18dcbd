package truth

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestIoU(t *testing.T) {
	for _, c := range []struct {
		a, b Box
		want float64
	}{
		{Box{0, 0, 10, 10}, Box{0, 0, 10, 10}, 1},
		{Box{0, 0, 10, 10}, Box{5, 0, 15, 10}, 1.0 / 3},
		{Box{0, 0, 10, 10}, Box{10, 0, 20, 10}, 0},
		{Box{0, 0, 10, 10}, Box{2, 2, 4, 4}, 0.04},
		{Box{5, 5, 5, 5}, Box{5, 5, 5, 5}, 0},
		{Box{10, 10, 0, 0}, Box{0, 0, 10, 10}, 0},
	} {
		if got := IoU(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("IoU(%v, %v) = %v; want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestIoUIsSymmetricAndBounded(t *testing.T) {
	box := rapid.Custom(func(t *rapid.T) (b Box) {
		for i := range b {
			b[i] = rapid.Float64Range(-1e6, 1e6).Draw(t, "edge")
		}
		return b
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := box.Draw(t, "a"), box.Draw(t, "b")
		ab, ba := IoU(a, b), IoU(b, a)
		if ab != ba || !(ab >= 0 && ab <= 1+1e-9) {
			t.Fatalf("%v and %v", ab, ba)
		}
	})
}

func TestScore(t *testing.T) {
	f := &Frame{Objects: []Object{
		{ID: 1, Box: Box{0, 0, 10, 10}, Moving: true},
		{ID: 2, Box: Box{100, 100, 120, 120}, Moving: true},
		{ID: 3, Box: Box{50, 50, 60, 60}},
	}}
	var s Score
	// A right detection, the same again (each object is found once), a detection on the standing object, and on
	// nothing.
	s.Add(f, []Box{{1, 1, 11, 11}, {0, 0, 9, 9}, {50, 50, 61, 61}, {200, 200, 210, 210}})
	if s != (Score{Hits: 1, False: 2, Missed: 1}) {
		t.Errorf("got %+v", s)
	}
	if s.Precision() != 1.0/3 || s.Recall() != 0.5 {
		t.Errorf("precision %v, recall %v", s.Precision(), s.Recall())
	}
	if empty := (Score{}); empty.Precision() != 1 || empty.Recall() != 1 {
		t.Error("an empty score is not perfect")
	}
}

func TestScoreWithClasses(t *testing.T) {
	seven, eight := 7, 8
	f := &Frame{
		Objects: []Object{
			{ID: 1, Box: Box{0, 0, 10, 10}, Moving: true, Class: &seven},
			{ID: 2, Box: Box{100, 100, 120, 120}, Moving: true, Class: &eight},
			{ID: 3, Box: Box{50, 50, 60, 60}, Moving: true},
		},
		Ignore: []Box{{200, 0, 220, 30}},
	}
	for name, c := range map[string]struct {
		found []Detection
		want  Score
	}{
		"right": {[]Detection{{Box{0, 0, 10, 9}, 7}, {Box{101, 101, 120, 120}, 8}, {Box{50, 50, 60, 60}, 3}},
			Score{Hits: 3}},
		"misread":      {[]Detection{{Box{0, 0, 10, 10}, 1}}, Score{False: 1, Missed: 3}},
		"too far away": {[]Detection{{Box{5, 0, 15, 10}, 7}}, Score{False: 1, Missed: 3}},
		"also misread": {[]Detection{{Box{0, 0, 10, 10}, 1}, {Box{0, 0, 10, 8}, 7}},
			Score{Hits: 1, False: 1, Missed: 2}},
		"to ignore":       {[]Detection{{Box{205, 5, 230, 30}, 2}, {Box{200, 0, 210, 10}, 2}}, Score{Missed: 3}},
		"beside what is":  {[]Detection{{Box{215, 5, 240, 30}, 2}}, Score{False: 1, Missed: 3}},
		"nothing is said": {nil, Score{Missed: 3}},
	} {
		var s Score
		s.AddClassified(f, c.found)
		if s != c.want {
			t.Errorf("%s: %+v; want %+v", name, s, c.want)
		}
	}
}

// The better pair wins, whatever the order.
func TestMatchTakesTheBestPair(t *testing.T) {
	f := &Frame{Objects: []Object{{Box: Box{0, 0, 10, 10}, Moving: true}, {Box: Box{4, 0, 14, 10}, Moving: true}}}
	for _, found := range [][]Box{{{0, 0, 10, 10}, {4, 0, 14, 10}}, {{4, 0, 14, 10}, {0, 0, 10, 10}}} {
		var s Score
		s.Add(f, found)
		if s != (Score{Hits: 2}) {
			t.Errorf("%v: %+v", found, s)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, err string }{
		"good": {`{"width":8,"height":6,"fps":30,"frames":[{"index":0,"t":0,"objects":[{"id":1,"box":[1,2,3,4],` +
			`"moving":true}]}]}`, ""},
		"unknown": {`{"width":8,"height":6,"fps":30,"frmes":[]}`, "frmes"},
		"size":    {`{"width":0,"height":6,"fps":30}`, "must be positive"},
		"order":   {`{"width":8,"height":6,"fps":30,"frames":[{"index":1}]}`, "frames[0].index is 1"},
		"box": {`{"width":8,"height":6,"fps":30,"frames":[{"index":0,"objects":[{"box":[3,2,1,4]}]}]}`,
			"frames[0].objects[0].box"},
		"class": {`{"width":8,"height":6,"fps":30,"frames":[{"index":0,"objects":[{"box":[1,2,3,4],"class":-1}]}]}`,
			"class is -1"},
		"ignore": {`{"width":8,"height":6,"fps":30,"frames":[{"index":0,"objects":[],"ignore":[[3,2,1,4]]}]}`,
			"frames[0].ignore[0]"},
		"nothing": {``, "EOF"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		truth, err := Load(path)
		if c.err == "" {
			if err != nil || len(truth.Frames[0].moving()) != 1 {
				t.Errorf("%s: %+v, %v", name, truth, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want %q", name, err, c.err)
		}
	}
	if _, err := Load(filepath.Join(dir, "missing")); !os.IsNotExist(err) &&
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing: %v", err)
	}
}

func TestAt(t *testing.T) {
	c := &Truth{FPS: 30, Frames: make([]Frame, 3)}
	for i := range c.Frames {
		c.Frames[i].Index = i
	}
	for s, want := range map[float64]int{0: 0, 0.0333: 1, 0.0667: 2, 0.08: 2, 0.1: -1, -1: -1, math.NaN(): -1} {
		f := c.At(s)
		if (f == nil) != (want < 0) || f != nil && f.Index != want {
			t.Errorf("At(%v) = %v; want %d", s, f, want)
		}
	}
}
