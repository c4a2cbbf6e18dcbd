package codec

import (
	"errors"
	"image"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A large picture may have MaxPerByte pixels per byte and no more; a smaller picture any number.
func TestPixelsPerByte(t *testing.T) {
	l := Limits{MaxPerByte: 1000}
	of := func(w, h uint32, n int) []byte {
		return append(pngHeaderOf(w, h), make([]byte, n-len(pngHeaderOf(0, 0)))...)
	}
	for _, c := range []struct {
		w, h uint32
		n    int
		ok   bool
	}{
		{4000, 3000, 12000, true}, {4000, 3000, 11999, false}, {4000, 3001, 12000, false}, {4000, 3001, 12004, true},
		{4096, 2048, 2000, true}, {4096, 2049, 2000, false}, {4096, 2049, 8393, true},
	} {
		_, err := l.Header(of(c.w, c.h, c.n))
		if c.ok && err != nil || !c.ok && (!errors.Is(err, ErrTooLarge) ||
			!strings.Contains(err.Error(), "limits.max_pixels_per_byte=1000")) {
			t.Errorf("%dx%d in %d bytes: %v", c.w, c.h, c.n, err)
		}
	}
	if _, err := (Limits{}).Header(of(4096, 4096, 3000)); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

// MaxDecoded bounds the decoded pixels; for a JPEG their number depends on the target.
func TestPixelsThatAreDecoded(t *testing.T) {
	m := scene(800, 600)
	pics := map[string][]byte{"jpeg": jpegOf(t, m, 80), "png": pngOf(t, m)}
	pics["webp"] = riff("VP8X", vp8x(0, 800, 600), "VP8L", vp8l(800, 600))
	for name, b := range pics {
		for _, c := range []struct {
			side, limit int
			ok          bool // for a JPEG decoded at a reduced size
		}{{300, 400*300 - 1, false}, {300, 400 * 300, true}, {60, 100*75 - 1, false}, {60, 100 * 75, true},
			{60, 800*600 - 1, true}, {700, 800*600 - 1, false}, {700, 800 * 600, true}, {60, 800 * 600, true}} {
			d := NewDecoder(Limits{MaxDecoded: c.limit})
			tg := Target{Width: c.side, Height: c.side}
			_, err := d.Decode(b, tg, make([]byte, tg.Size(800, 600)))
			ok := c.limit >= 800*600 || c.ok && name == "jpeg" && Turbo
			if refused := errors.Is(err, ErrTooLarge); refused == ok || refused && !strings.Contains(err.Error(),
				"limits.max_decoded_pixels=") {
				t.Errorf("%s to %d with a limit of %d: %v", name, c.side, c.limit, err)
			}
		}
	}
}

// Decoding for longer than MaxTime ends with an error that names the setting. The decoder stays usable.
func TestTimeOfDecoding(t *testing.T) {
	pics := quadPictures(t)
	pics["large.jpg"], pics["large.png"] = jpegOf(t, busy(900, 700), 90), pngOf(t, busy(900, 700))
	for _, name := range []string{"420.jpg", "progressive.jpg", "large.jpg", "rgb.png", "interlaced.png", "large.png",
		"lossless.webp"} {
		b := pics[name]
		d := NewDecoder(Limits{MaxTime: 1})
		tg := Target{Width: 30, Height: 20}
		got, want := make([]byte, tg.Size(0, 0)), make([]byte, tg.Size(0, 0))
		if _, err := d.Decode(b, tg, got); !errors.Is(err, ErrSlow) ||
			!strings.Contains(err.Error(), "limits.max_decode_time=1ns") {
			t.Errorf("%s: %v", name, err)
		}
		d.Limits.MaxTime = time.Hour
		if _, err := d.Decode(b, tg, got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := NewDecoder(Limits{}).Decode(b, tg, want); err != nil || string(got) != string(want) {
			t.Errorf("%s after an interrupted picture: differs, %v", name, err)
		}
	}
}

// account counts charges.
type account struct {
	held, most, limit int64
}

var errAccount = errors.New("no memory")

func (a *account) Charge(n int64) error {
	if a.held+n > a.limit {
		return errAccount
	}
	a.held += n
	a.most = max(a.most, a.held)
	return nil
}

func (a *account) Refund(n int64) { a.held -= n }

// The memory for decoding is charged in advance, is not less than the allocation, and is refunded after success and
// failure.
func TestMemoryIsCharged(t *testing.T) {
	pics := quadPictures(t)
	m := scene(1200, 900)
	pics["large.jpg"], pics["large.png"] = jpegOf(t, m, 90), pngOf(t, m)
	pics["wide.png"] = pngOf(t, image.NewNRGBA64(image.Rect(0, 0, 200000, 2)))
	pics["animation.webp"] = animation(t, "")
	for _, name := range slices.Sorted(maps.Keys(pics)) {
		b := pics[name]
		for _, b := range [][]byte{b, b[:len(b)*2/3]} {
			a := &account{limit: 1 << 40}
			d := NewDecoder(Limits{})
			d.Memory = a
			tg := Target{Width: 40, Height: 30}
			dst := make([]byte, tg.Size(0, 0))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = d.Decode(b, tg, dst)
			runtime.ReadMemStats(&after)
			const tables = 260 << 10 // of fixed size
			if took := int64(after.TotalAlloc - before.TotalAlloc); took > a.most+tables && a.most > 0 {
				t.Errorf("%s: allocated %d KB, charged %d KB", name, took>>10, a.most>>10)
			}
			if a.held != 0 {
				t.Errorf("%s: %d bytes are still charged", name, a.held)
			}
			if a.most == 0 {
				continue // the header was refused
			}
			a.limit = a.most - 1
			if _, err := d.Decode(b, tg, dst); !errors.Is(err, errAccount) || a.held != 0 {
				t.Errorf("%s: %v with too little memory, %d bytes charged", name, err, a.held)
			}
		}
	}
}

// The bound of a library's memory is the charged memory.
func TestMemoryOfCoefficients(t *testing.T) {
	b := quadPictures(t)["progressive.jpg"]
	info, err := Header(b)
	if err != nil {
		t.Fatal(err)
	}
	if !Turbo {
		return // image/jpeg has no bound; TestMemoryIsCharged compares
	}
	d, tg := NewDecoder(Limits{}), Target{Width: 40, Height: 30}
	dst := make([]byte, tg.Size(0, 0))
	if _, err := d.DecodeInfo(b, info, tg, dst); err != nil {
		t.Error(err)
	}
	info.jpegMemory = 1 << 10
	if _, err := d.DecodeInfo(b, info, tg, dst); err == nil {
		t.Error("coefficients were allocated beyond the bound")
	}
}
