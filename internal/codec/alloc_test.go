package codec

import (
	"encoding/binary"
	"testing"
)

var hotTargets = map[string]Target{
	"itself":         {},
	"half":           {Width: 320, Height: 240},
	"224 NCHW FP32":  {Width: 224, Height: 224, Layout: NCHW, Type: FP32},
	"320 letterbox":  {Width: 320, Height: 320, Fit: Letterbox, Fill: 114},
	"96 BGR":         {Width: 96, Height: 96, Color: BGR},
	"gray, enlarged": {Width: 700, Height: 500, Color: Gray},
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	d := NewDecoder(Limits{})
	defer d.Close()
	j := jpegOf(t, scene(640, 480), 90)
	turned := withExif(j, 6, binary.BigEndian)
	for name, tg := range hotTargets {
		dst := make([]byte, tg.Size(640, 480))
		run := map[string]func() error{
			"header": func() error { _, err := Header(j); return err },
			"jpeg":   func() error { _, err := d.Decode(j, tg, dst); return err },
			"turned": func() error { _, err := d.Decode(turned, tg, dst); return err },
		}
		if !Turbo { // image/jpeg allocates the picture
			delete(run, "jpeg")
			delete(run, "turned")
		}
		for _, f := range []RawFormat{RGB24, NV12, Gray8} {
			raw := make([]byte, f.Size(640, 480))
			run[f.String()] = func() error { _, err := d.Convert(raw, f, 640, 480, tg, dst); return err }
		}
		for what, f := range run {
			var err error
			n := leastAllocs(func() {
				if e := f(); e != nil {
					err = e
				}
			})
			if err != nil || n != 0 {
				t.Errorf("%s to %s: %v allocations, error %v", what, name, n, err)
			}
		}
	}
}

// leastAllocs returns the number of allocations of a call of f: the least of up to five measurements. AllocsPerRun
// also counts allocations by the runtime, such as for a new thread on a busy machine; the least measurement is free
// of these.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(5, f)
	for i := 1; i < 5 && least > 0; i++ {
		least = min(least, testing.AllocsPerRun(5, f))
	}
	return least
}
