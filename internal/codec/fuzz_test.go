package codec

import (
	"encoding/binary"
	"errors"
	"testing"
)

func seeds(f *testing.F) [][]byte {
	var all [][]byte
	for _, b := range quadPictures(f) {
		all = append(all, b, b[:len(b)/2], b[:len(b)-3])
	}
	j := jpegOf(f, scene(40, 30), 80)
	return append(all, nil, []byte("x"), pngHeaderOf(20000, 20000), pngHeaderOf(3, 0),
		withExif(j, 6, binary.BigEndian), withExif(j, 8, binary.LittleEndian), jpegResized(j, 500, 500))
}

func FuzzHeader(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	l := Limits{MaxPixels: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := l.Header(b)
		if err != nil {
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCorrupt) &&
				!errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		if i.Width < 1 || i.Height < 1 || i.Width*i.Height > 1<<20 || i.Orientation < 1 || i.Orientation > 8 ||
			i.Kind == Unknown {
			t.Fatalf("%+v", i)
		}
	})
}

// FuzzDecode looks for panics, writes outside dst, and errors without a cause.
func FuzzDecode(f *testing.F) {
	for i, b := range seeds(f) {
		f.Add(b, uint8(i), uint8(9), uint16(i))
	}
	d := NewDecoder(Limits{MaxPixels: 1 << 18})
	f.Fuzz(func(t *testing.T, b []byte, w, h uint8, how uint16) {
		tg := Target{Width: int(w), Height: int(h), Color: Color(how % 3), Layout: Layout(how >> 2 & 1),
			Type: Type(how >> 3 & 1), Fit: Fit(how >> 4 & 1), Fill: 7}
		info, err := d.Limits.Header(b)
		if err != nil {
			return
		}
		const guard = 64
		n := tg.Size(info.Upright())
		mem := make([]byte, n+2*guard)
		for i := range mem {
			mem[i] = 0xa5
		}
		_, err = d.Decode(b, tg, mem[guard:guard+n])
		for i := range guard {
			if mem[i] != 0xa5 || mem[guard+n+i] != 0xa5 {
				t.Fatal("wrote outside dst")
			}
		}
		if err != nil && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCorrupt) &&
			!errors.Is(err, ErrUnsupported) {
			t.Fatalf("unclassified: %v", err)
		}
	})
}
