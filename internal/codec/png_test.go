package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// pngFile is a PNG of random filters and contents.
type pngFile struct {
	depth, kind int
	interlaced  bool
	w, h        int
	palette     []byte
	clear       []byte // tRNS
	between     []byte // chunks in front of the pixels
	level       int
	piece       int // bytes of an IDAT chunk
}

func (f pngFile) encode(t testing.TB, random *rand.Rand) []byte {
	ihdr := []byte{byte(f.w >> 24), byte(f.w >> 16), byte(f.w >> 8), byte(f.w), 0, 0, byte(f.h >> 8), byte(f.h),
		byte(f.depth), byte(f.kind), 0, 0, 0}
	if f.interlaced {
		ihdr[12] = 1
	}
	out := append([]byte(pngMagic), pngChunk("IHDR", ihdr)...)
	if f.palette != nil {
		out = append(out, pngChunk("PLTE", f.palette)...)
	}
	if f.clear != nil {
		out = append(out, pngChunk("tRNS", f.clear)...)
	}
	out = append(out, f.between...)
	var raw []byte
	rows := func(w, h int) {
		if w == 0 || h == 0 {
			return
		}
		n := (w*f.depth*pngSamples[f.kind] + 7) / 8
		for range h {
			raw = append(raw, byte(random.IntN(5)))
			for i := range n {
				v := byte(random.Uint32())
				if i%7 < 4 { // values that are keys and few differences too
					v &= 3
				}
				raw = append(raw, v)
			}
		}
	}
	if f.interlaced {
		for _, p := range adam7 {
			rows((f.w-p.x+p.dx-1)/p.dx, (f.h-p.y+p.dy-1)/p.dy)
		}
	} else {
		rows(f.w, f.h)
	}
	packed := deflated(t, raw, f.level)
	for len(packed) > 0 {
		n := min(len(packed), f.piece)
		out = append(out, pngChunk("IDAT", packed[:n])...)
		packed = packed[n:]
	}
	return append(out, pngChunk("IEND", nil)...)
}

func deflated(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// pngFiles has every colour type and bit depth, interlaced or not, with and without
// transparency, of sizes down to one pixel.
func pngFiles(t testing.TB) map[string][]byte {
	random := rand.New(rand.NewPCG(5, 6))
	all := map[string][]byte{}
	gamma := append(pngChunk("gAMA", []byte{0, 0, 0xb1, 0x8f}),
		pngChunk("tEXt", bytes.Repeat([]byte("words "), 5000))...)
	for kind, depths := range map[int][]int{pngGray: {1, 2, 4, 8, 16}, pngRGB: {8, 16}, pngPalette: {1, 2, 4, 8},
		pngGrayAlpha: {8, 16}, pngRGBAlpha: {8, 16}} {
		for _, depth := range depths {
			for _, interlaced := range []bool{false, true} {
				for i, size := range [][2]int{{1, 1}, {2, 3}, {7, 5}, {8, 8}, {33, 21}, {70, 50}, {1, 40}, {90, 1}} {
					for _, clear := range []bool{false, true} {
						f := pngFile{depth: depth, kind: kind, interlaced: interlaced, w: size[0], h: size[1],
							level: i%8 + 1, piece: 1 + i*300}
						if i%2 == 0 {
							f.between = gamma
						}
						if kind == pngPalette {
							n := 1 + random.IntN(1<<depth) // some indexes are beyond it
							for range 3 * n {
								f.palette = append(f.palette, byte(random.Uint32()))
							}
							if clear {
								for range 1 + random.IntN(n) {
									f.clear = append(f.clear, byte(random.Uint32()))
								}
							}
						} else if clear && kind == pngGray {
							f.clear = []byte{byte(i % 2 * 2), 2}
						} else if clear && kind == pngRGB {
							f.clear = []byte{0, 1, 0, 2, 0, 3}
						} else if clear {
							continue
						}
						all[fmt.Sprintf("type %d, %d bits, interlaced %v, %v, transparent %v", kind, depth, interlaced,
							size, clear)] = f.encode(t, random)
					}
				}
			}
		}
	}
	return all
}

// drawReference decodes with image/png, and resizes the whole picture.
func drawReference(t testing.TB, d *Decoder, b []byte, tg Target, dst []byte) error {
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	info, err := d.Limits.Header(b)
	if err != nil {
		t.Fatal(err)
	}
	w, h := info.Upright()
	j := job{info: info, target: &tg, dst: dst}
	if err := j.place(w, h); err != nil {
		t.Fatal(err)
	}
	w, h = info.Width, info.Height
	rgb := make([]byte, 0, 3*w*h)
	for y := range h {
		for x := range w {
			c := m.At(x, y)
			if p, ok := m.(*image.Paletted); ok { // premultiplied with 16 bits
				r, g, b, _ := p.At(x, y).RGBA()
				rgb = append(rgb, byte(r>>8), byte(g>>8), byte(b>>8))
				continue
			}
			v := color.NRGBA64Model.Convert(c).(color.NRGBA64)
			if n, ok := c.(color.NRGBA64); ok {
				v = n
			}
			a := byte(v.A >> 8)
			if n, ok := c.(color.NRGBA); ok { // Convert rounds colours of little alpha
				v.R, v.G, v.B = uint16(n.R)<<8, uint16(n.G)<<8, uint16(n.B)<<8
			}
			rgb = append(rgb, onBlack(byte(v.R>>8), a), onBlack(byte(v.G>>8), a), onBlack(byte(v.B>>8), a))
		}
	}
	d.src = source{}
	d.src.setPacked(modelRGB, rgb, 3*w, 3, 1, w, h)
	return d.draw(&j)
}

// Every kind of PNG gives the pixels that image/png gives, at all scales, in parts of
// it, and turned.
func TestPNGAgainstImagePNG(t *testing.T) {
	d, ref := NewDecoder(Limits{}), NewDecoder(Limits{})
	files := pngFiles(t)
	for name, b := range quadPictures(t) {
		if Sniff(b) == PNG {
			files[name] = b
		}
	}
	turned := append(bytes.Clone(files["rgb.png"][:33]), pngChunk("eXIf", tiffOf(6, binary.BigEndian))...)
	files["turned"] = append(turned, files["rgb.png"][33:]...)
	for name, b := range files {
		info, err := Header(b)
		if err != nil {
			t.Fatal(name, err)
		}
		w, h := info.Upright()
		region := Region{X: w / 3, Y: h / 4, Width: max(1, w/2), Height: max(1, h/2)}
		for i, tg := range []Target{
			{}, {Width: max(1, w/2), Height: max(1, h/2)}, {Width: max(1, w/5), Height: max(1, h/5)},
			{Width: max(1, w/9), Height: max(1, h/9)},
			{Width: 2*w + 1, Height: 3 * h}, {Width: w, Height: 2*h + 3}, {Width: 11, Height: 40},
			{Width: 20, Height: 30, Fit: Letterbox, Type: FP32, Layout: NCHW},
			{Region: region}, {Region: region, Width: 3, Height: 2}, {Region: region, Width: 2 * w, Height: h},
		} {
			tg.Color = Color(i % 3)
			got, want := make([]byte, tg.Size(w, h)), make([]byte, tg.Size(w, h))
			if err := drawReference(t, ref, b, tg, want); err != nil {
				t.Fatal(name, err)
			}
			if _, err := d.Decode(b, tg, got); err != nil {
				t.Fatal(name, tg, err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s, %+v: differs from image/png", name, tg)
			}
		}
	}
}

// A PNG that is cut anywhere is an error, as is one with a byte too few or too many of
// pixels.
func TestCutPNG(t *testing.T) {
	d := NewDecoder(Limits{})
	dst := make([]byte, 5*4*3)
	tg := Target{Width: 5, Height: 4}
	for name, b := range pngFiles(t) {
		if len(b) > 600 || len(name)%3 > 0 && testing.Short() { // also the long text
			continue
		}
		for n := range b {
			if _, err := d.Decode(b[:n], tg, dst); !errors.Is(err, ErrTruncated) &&
				!(n < 8 && errors.Is(err, ErrUnknown)) {
				t.Fatalf("%s cut to %d of %d bytes: %v", name, n, len(b), err)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for rows, text := range map[int]string{19: "not enough pixel data", 21: "too much pixel data"} {
		f := pngFile{depth: 8, kind: pngRGB, w: 20, h: rows, level: 6, piece: 1 << 20}
		b := f.encode(t, random)
		copy(b[8:], pngChunk("IHDR", []byte{0, 0, 0, 20, 0, 0, 0, 20, 8, 2, 0, 0, 0}))
		if _, err := d.Decode(b, tg, dst); !errors.Is(err, ErrCorrupt) ||
			!bytes.Contains([]byte(err.Error()), []byte(text)) {
			t.Errorf("%d rows of 20: %v", rows, err)
		}
	}
}

// A PNG takes memory for a few rows, whatever its height.
func TestPNGTakesNoMemoryForItsPixels(t *testing.T) {
	b := pngOf(t, image.NewRGBA(image.Rect(0, 0, 1000, 4000)))
	dst := make([]byte, 50*50*3)
	d := NewDecoder(Limits{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := d.Decode(b, Target{Width: 50, Height: 50}, dst); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 300<<10 {
		t.Errorf("took %d KB, the pixels are 12 MB", took>>10)
	}
	d.deadline = time.Time{}
	if n := testing.AllocsPerRun(3, func() { _, _ = d.Decode(b, Target{Width: 50, Height: 50}, dst) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// Compressed data without any output end at the deadline, too: the decompressor returns to no row meanwhile.
func TestSlowPNGWithoutPixels(t *testing.T) {
	empty := []byte{0x78, 0x9c}
	// four blocks of the fixed code, 10 bits each: not the last block, the code 1, the end of the block
	for range 2_000_000 {
		empty = append(empty, 0x02, 0x08, 0x20, 0x80, 0x00)
	}
	b := slices.Concat(pngHeaderOf(16, 16)[:33], pngChunk("IDAT", empty), pngChunk("IEND", nil))
	d := NewDecoder(Limits{MaxTime: time.Millisecond})
	if _, err := d.Decode(b, Target{Width: 8, Height: 8}, make([]byte, 8*8*3)); !errors.Is(err, ErrSlow) {
		t.Errorf("%v, want %v", err, ErrSlow)
	}
}

// FuzzPNG compares with image/png: which files are accepted, and their pixels.
func FuzzPNG(f *testing.F) {
	n := 0
	for _, b := range pngFiles(f) {
		if n++; len(b) < 1000 {
			f.Add(b)
		}
	}
	d, ref := NewDecoder(Limits{MaxPixels: 1 << 14}), NewDecoder(Limits{MaxPixels: 1 << 14})
	f.Fuzz(func(t *testing.T, b []byte) {
		if Sniff(b) != PNG {
			return
		}
		info, err := d.Limits.Header(b)
		if err != nil {
			return
		}
		tg := Target{Width: 7, Height: 5}
		if len(b)%2 == 0 {
			tg = Target{}
		}
		got, want := make([]byte, tg.Size(info.Upright())), make([]byte, tg.Size(info.Upright()))
		_, err = d.Decode(b, tg, got)
		wantErr := drawReference(t, ref, b, tg, want)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, image/png has %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Fatal("differs from image/png")
		}
	})
}
