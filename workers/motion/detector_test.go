package motion

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

func detector(t testing.TB, s Settings) *Detector {
	t.Helper()
	d, err := NewDetector(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wall is a noisy picture of a wall under the given light.
func wall(rng *rand.Rand, w, h int, light float64, noise float64) []byte {
	f := make([]byte, w*h)
	for i := range f {
		v := (100+float64((i%w*7/16+i/w*5/16)%40))*light + noise*rng.NormFloat64()
		f[i] = byte(min(max(math.Round(v), 0), 255))
	}
	return f
}

func paint(f []byte, w, x0, y0, side int, v byte) {
	for y := y0; y < y0+side; y++ {
		for x := x0; x < x0+side; x++ {
			f[y*w+x] = v
		}
	}
}

func TestNoMovement(t *testing.T) {
	for _, noise := range some(4.0, 0, 1, 8) {
		rng := rand.New(rand.NewPCG(1, 1))
		d := detector(t, Settings{})
		for i := range 200 {
			// The brightness rises and falls by a fifth in seven seconds.
			light := 1 + 0.2*math.Sin(float64(i)/33)
			if got := d.Detect(wall(rng, 320, 240, light, noise)); len(got) > 0 && i > 40 {
				t.Fatalf("noise %v: frame %d has %v", noise, i, got)
			}
		}
	}
}

func TestOneObject(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := detector(t, Settings{})
	next := func(x int) []Box {
		f := wall(rng, 320, 240, 1, 1.5)
		if x >= 0 {
			paint(f, 320, x, 100, 30, 220)
		}
		return d.Detect(f)
	}
	for i := range 20 {
		if got := next(-1); len(got) != 0 {
			t.Fatalf("frame %d without an object: %v", i, got)
		}
	}
	for x := 20; x < 200; x += 2 {
		got := next(x)
		if len(got) != 1 {
			t.Fatalf("at %d: %v, want one box", x, got)
		}
		b := got[0]
		for _, e := range []struct{ got, want float32 }{{b.X1, float32(x)}, {b.X2, float32(x + 30)}, {b.Y1, 100},
			{b.Y2, 130}} {
			if math.Abs(float64(e.got-e.want)) > 3 {
				t.Fatalf("at %d: %v", x, b)
			}
		}
		if !(b.Score > 0.5 && b.Score <= 1) {
			t.Fatalf("score %v", b.Score)
		}
	}
	// The object stops, and becomes background after 2/Learn frames.
	frames := 0
	for len(next(200)) > 0 {
		if frames++; frames > 250 {
			t.Fatal("an object that stands still is still detected after 250 frames")
		}
	}
	if frames < 150 {
		t.Errorf("an object that stands still became background after %d frames, want about 200", frames)
	}
	// The object leaves: the old place of the object is no object.
	for i := range 60 {
		if got := next(-1); i > 40 && len(got) > 0 {
			t.Fatalf("%d frames after it has left: %v", i, got)
		}
	}
}

func TestLightOn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := detector(t, Settings{})
	for i := range 90 {
		light := 0.4
		if i >= 30 {
			light = 1.4
		}
		if got := d.Detect(wall(rng, 320, 240, light, 1)); len(got) > 0 {
			t.Fatalf("frame %d: %v", i, got)
		}
	}
}

func TestWarmUp(t *testing.T) {
	d := detector(t, Settings{})
	list := frames(d.Settings(), 40)
	for i, f := range list {
		got := d.Detect(f)
		if i < warmUp && len(got) > 0 {
			t.Fatalf("frame %d: %v", i, got)
		}
		if i == len(list)-1 && len(got) == 0 {
			t.Fatal("nothing found")
		}
	}
}

func TestDetectAllocatesNothing(t *testing.T) {
	d := detector(t, Settings{})
	list := frames(d.Settings(), 64)
	for range 2 {
		for _, f := range list {
			d.Detect(f)
		}
	}
	i := 0
	if n := testing.AllocsPerRun(128, func() { d.Detect(list[i%64]); i++ }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func decode(p stream.Params) (Settings, error) {
	kind, _ := workers.Lookup("motion")
	s, err := kind.Decode(p)
	return *s.(*Settings), err
}

func TestSettings(t *testing.T) {
	for key, p := range map[string]stream.Params{
		"width":     {"width": int64(8)},
		"height":    {"height": 240.5},
		"threshold": {"threshold": "much"},
		"min_area":  {"min_area": 1.5},
		"learn":     {"learn": int64(0)},
	} {
		_, err := decode(p)
		var e *stream.Error
		if !errors.As(err, &e) || e.Field != key || e.Code != stream.InvalidArgument {
			t.Errorf("%v: %v", p, err)
		}
	}
	s, err := decode(stream.Params{"width": int64(64), "threshold": 0.5})
	if err != nil || s.Width != 64 || s.Height != 240 || s.Threshold != 0.5 || s.Learn != 0.01 {
		t.Errorf("%+v, %v", s, err)
	}
}

// FuzzDetect checks that all accepted settings, with any pictures, give boxes inside
// the picture.
func FuzzDetect(f *testing.F) {
	f.Add(64, 48, 0.03, 0.001, 0.01, []byte{1, 2, 3, 200, 5})
	f.Add(65, 17, 0.9, 1.0, 0.5, []byte{0, 255})
	f.Add(16, 16, 1.0/256, 1e-9, 0.0005, []byte{9})
	f.Add(130, 16, math.NaN(), math.Inf(1), -1.0, []byte{0, 0, 255, 255, 255})
	f.Fuzz(func(t *testing.T, w, h int, threshold, area, learn float64, seed []byte) {
		if len(seed) == 0 || w > 200 || h > 200 {
			return
		}
		d, err := NewDetector(Settings{Width: w, Height: h, Threshold: threshold, MinArea: area, Learn: learn})
		if err != nil {
			return
		}
		s := d.Settings()
		if s.Width > 320 || s.Height > 240 {
			return
		}
		gray := make([]byte, s.Width*s.Height)
		for i := range 30 {
			for k := range gray {
				if k%(i+2) < 3 || i < 3 {
					gray[k] = seed[(k/7+i*13)%len(seed)]
				}
			}
			got := d.Detect(gray)
			if len(got) > MaxBoxes {
				t.Fatalf("%d boxes", len(got))
			}
			for _, b := range got {
				if !(b.X1 >= 0 && b.X1 < b.X2 && b.X2 <= float32(s.Width) && b.Y1 >= 0 && b.Y1 < b.Y2 &&
					b.Y2 <= float32(s.Height) && b.Score >= 0 && b.Score <= 1) {
					t.Fatalf("%+v in %dx%d", b, s.Width, s.Height)
				}
			}
		}
	})
}
