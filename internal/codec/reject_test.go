package codec

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"strings"
	"testing"
)

// pngHeaderOf is the start of a PNG with the claimed size.
func pngHeaderOf(w, h uint32) []byte {
	ihdr := append([]byte("IHDR"), 0, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0)
	binary.BigEndian.PutUint32(ihdr[4:], w)
	binary.BigEndian.PutUint32(ihdr[8:], h)
	b := append([]byte(pngMagic), 0, 0, 0, 13)
	b = append(b, ihdr...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(ihdr))
	return append(b, 0, 0, 0, 0, 'I', 'D', 'A', 'T', 0x35, 0xaf, 0x06, 0x1e)
}

// jpegResized overwrites the size in a JPEG's frame header.
func jpegResized(b []byte, w, h int) []byte {
	b = append([]byte{}, b...)
	for i := 2; i+9 < len(b); i += 2 + int(binary.BigEndian.Uint16(b[i+2:])) {
		if b[i+1] == 0xc0 || b[i+1] == 0xc2 {
			binary.BigEndian.PutUint16(b[i+5:], uint16(h))
			binary.BigEndian.PutUint16(b[i+7:], uint16(w))
			break
		}
	}
	return b
}

func TestRefused(t *testing.T) {
	good := jpegOf(t, scene(64, 48), 90)
	pics := quadPictures(t)
	animated := animation(t, "")
	crop, wide := animated[:60], append([]byte{}, animated...)
	wide[strings.Index(string(wide), "ANMF")+8] = 9 // 18 pixels to the right
	arithmetic := append([]byte{}, good...)
	arithmetic[strings.Index(string(good), "\xff\xc0")+1] = 0xc9
	noAdobe := []byte(strings.Replace(string(pics["cmyk.jpg"]), "Adobe", "Ad0be", 1))
	scans := append([]byte{}, pics["progressive.jpg"]...)
	scans = append(scans, strings.Repeat("\xff\xda", maxScans+1)...)
	lossless := pics["lossless.webp"]
	bigWebP := append([]byte{}, lossless...)
	binary.LittleEndian.PutUint32(bigWebP[21:], 0x3fff|0x3fff<<14)

	for _, tc := range []struct {
		name string
		b    []byte
		want error
		text string
	}{
		{"nothing", nil, ErrUnknown, "0 bytes"},
		{"empty", []byte{}, ErrUnknown, ""},
		{"one byte", []byte{0xff}, ErrUnknown, "1 bytes"},
		{"text", []byte("this is not a picture at all"), ErrUnknown, ""},
		{"gif", []byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;"), ErrUnknown,
			"not a JPEG, PNG or WebP picture (a GIF): send one of those"},
		{"bmp", []byte("BM\x46\x00\x00\x00"), ErrUnknown, "a BMP"},
		{"tiff", tiffOf(6, binary.BigEndian), ErrUnknown, "a TIFF"},
		{"heic", []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00"), ErrUnknown, "a HEIC"},
		{"mp4", []byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00"), ErrUnknown, "a video"},
		{"wave file", []byte("RIFF\x00\x00\x00\x00WAVEfmt "), ErrUnknown, ""},
		{"jpeg magic", []byte{0xff, 0xd8, 0xff}, ErrTruncated, ""},
		{"jpeg end at once", []byte{0xff, 0xd8, 0xff, 0xd9}, ErrCorrupt, "marker 0xd9"},
		{"jpeg segment of length 0", []byte{0xff, 0xd8, 0xff, 0xe0, 0, 0, 0}, ErrCorrupt, "length 0"},
		{"jpeg of 0 columns", jpegResized(good, 0, 48), ErrCorrupt, "0x48"},
		{"jpeg of 0 rows", jpegResized(good, 64, 0), ErrCorrupt, "64x0"},
		{"jpeg of 65535 squared", jpegResized(good, 65535, 65535), ErrTooLarge, "max_pixels=67108864"},
		{"jpeg that claims more than it holds", jpegResized(good, 8000, 8000), ErrTruncated, "cannot hold"},
		{"jpeg that claims a little more", jpegResized(good, 64, 96), nil, ""},
		{"jpeg arithmetic", arithmetic, ErrUnsupported, "arithmetic"},
		{"jpeg of many scans", scans, ErrUnsupported, "100 scans"},
		{"jpeg cmyk without adobe", noAdobe, ErrUnsupported, "Adobe"},
		{"png magic", []byte(pngMagic), ErrTruncated, ""},
		{"png of 20,000 squared", pngHeaderOf(20000, 20000), ErrTooLarge, "max_pixels=67108864"},
		{"png of 2^31 squared", pngHeaderOf(1<<31, 1<<31), ErrCorrupt, ""},
		{"png of 2^31-1 squared", pngHeaderOf(1<<31-1, 1<<31-1), ErrTooLarge, "max_pixels"},
		{"png of 0 columns", pngHeaderOf(0, 7), ErrCorrupt, "0x7"},
		{"png that claims more than it holds", pngHeaderOf(8000, 8000), ErrTruncated, "cannot hold"},
		{"png of no pixels", pngHeaderOf(2, 2), nil, ""},
		{"webp magic", []byte("RIFF\x00\x00\x00\x00WEBP"), ErrTruncated, ""},
		{"webp animated, cut", crop, ErrTruncated, "no complete frame"},
		{"webp animated, beside its canvas", wide, ErrCorrupt, "beyond the canvas"},
		{"webp of 16384 squared", bigWebP, ErrTooLarge, "max_pixels"},
		{"webp no signature", append([]byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x05\x00\x00\x00"), 1, 2, 3, 4, 5, 0),
			ErrCorrupt, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewDecoder(Limits{})
			defer d.Close()
			dst := make([]byte, 8*8*3)
			_, err := d.Decode(tc.b, Target{Width: 8, Height: 8}, dst)
			if err == nil {
				t.Fatal("was accepted")
			}
			if tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%v: want %v with %q", err, tc.want, tc.text)
			}
		})
	}
}

// A refused header costs no memory in proportion to its claim.
func TestHugeHeaderAllocatesLittle(t *testing.T) {
	b := pngHeaderOf(20000, 20000)
	r := testing.Benchmark(func(tb *testing.B) {
		for range tb.N {
			if _, err := Header(b); err == nil {
				tb.Fatal("was accepted")
			}
		}
	})
	if r.AllocedBytesPerOp() > 2048 {
		t.Fatalf("%d bytes to refuse a header", r.AllocedBytesPerOp())
	}
}

func TestLimitIsASetting(t *testing.T) {
	b := pngOf(t, scene(20, 20))
	if _, err := (Limits{MaxPixels: 400}).Header(b); err != nil {
		t.Fatal(err)
	}
	if _, err := (Limits{MaxPixels: 399}).Header(b); !errors.Is(err, ErrTooLarge) ||
		!strings.Contains(err.Error(), "max_pixels=399") {
		t.Fatal(err)
	}
	if _, err := NewDecoder(Limits{MaxPixels: 399}).Decode(b, Target{}, make([]byte, 1200)); !errors.Is(err,
		ErrTooLarge) {
		t.Fatal(err)
	}
}

// A picture cut anywhere is an error, never a picture with a gray rest. Only a cut after the pixels may pass.
func TestTruncated(t *testing.T) {
	pics := quadPictures(t)
	pics["photo.jpg"] = jpegOf(t, scene(200, 160), 90)
	d := NewDecoder(Limits{})
	defer d.Close()
	for name, b := range pics {
		dst := make([]byte, 16*16*3)
		tg := Target{Width: 16, Height: 16}
		tail := 1
		if Sniff(b) == WebP {
			tail = 24 // the decoder may ignore the last bits of the last chunk
		}
		step := max(len(b)/150, 1)
		for n := 0; n <= len(b)-tail; n += step {
			_, err := d.Decode(b[:n], tg, dst)
			if err == nil {
				t.Errorf("%s cut to %d of %d bytes was accepted", name, n, len(b))
			}
		}
		// A progressive picture without its last scans is a coarser picture.
		if Sniff(b) == JPEG && name != "progressive.jpg" {
			for n := len(b) / 3; n < len(b)-20; n += step {
				crop := append(append([]byte{}, b[:n]...), 0xff, 0xd9)
				if _, err := Header(crop); err != nil {
					continue
				}
				if _, err := d.Decode(crop, tg, dst); err == nil {
					t.Errorf("%s cut to %d of %d bytes, with an end, was accepted", name, n, len(b))
				}
			}
		}
		if _, err := d.Decode(b, tg, dst); err != nil {
			t.Errorf("%s after its cuts: %v", name, err)
		}
	}
}

// without drops the segments with a marker.
func without(b []byte, marker byte) []byte {
	out := append([]byte{}, b[:2]...)
	for i := 2; ; {
		n := 2 + int(binary.BigEndian.Uint16(b[i+2:]))
		if b[i+1] == 0xda {
			return append(out, b[i:]...)
		}
		if b[i+1] != marker {
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
}

// A decoder must not use the tables of an earlier picture.
func TestTablesDoNotLeak(t *testing.T) {
	d := NewDecoder(Limits{})
	defer d.Close()
	good := jpegOf(t, scene(64, 48), 20)
	dst := make([]byte, 64*48*3)
	if _, err := d.Decode(good, Target{}, dst); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(without(good, 0xdb), Target{}, dst); err == nil {
		t.Fatal("a picture without quantisation tables was decoded with another's")
	}
}

// Motion-JPEG cameras leave out the Huffman tables and mean the standard tables.
func TestStandardTables(t *testing.T) {
	b := jpegOf(t, scene(64, 48), 90)
	want, _ := decode(t, b, Target{})
	got, _ := decode(t, without(b, 0xc4), Target{})
	if string(got) != string(want) {
		t.Fatal("picture without Huffman tables differs")
	}
}

func TestPaddingIsAccepted(t *testing.T) {
	b := jpegOf(t, scene(64, 48), 90)
	want, _ := decode(t, b, Target{})
	for name, b := range map[string][]byte{
		"behind the end":  append(append([]byte{}, b...), make([]byte, 100)...),
		"before the end":  append(append([]byte{}, b[:len(b)-2]...), 0, 0, 0xff, 0xd9),
		"fill bytes":      append([]byte{0xff, 0xd8, 0xff, 0xff, 0xff}, b[3:]...),
		"without an EXIF": withExif(b, 0, binary.BigEndian),
	} {
		if got, _ := decode(t, b, Target{}); string(got) != string(want) {
			t.Errorf("%s: picture changed", name)
		}
	}
}

func TestOnePixel(t *testing.T) {
	m := quad(2, 2).SubImage(image.Rect(1, 1, 2, 2))
	for name, b := range map[string][]byte{"png": pngOf(t, m), "jpeg": jpegOf(t, m, 100)} {
		for _, n := range []int{0, 1, 2, 33} {
			for _, f := range []Fit{Stretch, Letterbox} {
				got, _ := decode(t, b, Target{Width: n, Height: n, Fit: f})
				for i, v := range got {
					if !near(int(v), 200, 2) {
						t.Fatalf("%s to %d: byte %d is %d, want 200", name, n, i, v)
					}
				}
			}
		}
	}
}

func TestTargetRefused(t *testing.T) {
	b := pngOf(t, scene(4, 4))
	nan := Norm{}
	nan.Mean[1] /= nan.Mean[0]
	for text, tg := range map[string]Target{
		"width": {Width: -1}, "height": {Height: 1 << 20}, "color": {Color: 9}, "layout": {Layout: 9},
		"type": {Type: 9}, "fit": {Fit: 9},
		"FP32": {Norm: Norm{Scale: [3]float32{1, 1, 1}}}, "finite": {Type: FP32, Norm: nan},
		"dst has 48 bytes": {Width: 9, Height: 9},
	} {
		_, err := NewDecoder(Limits{}).Decode(b, tg, make([]byte, 48))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want an error about %q", tg, err, text)
		}
	}
}

func TestBrokenExifIsIgnored(t *testing.T) {
	good := tiffOf(6, binary.LittleEndian)
	for n := range good {
		exifOrientation(good[:n])
	}
	far := append([]byte{}, good...)
	binary.LittleEndian.PutUint32(far[4:], 0xffffffff)
	nine := tiffOf(9, binary.LittleEndian)
	many := append([]byte{}, good...)
	binary.LittleEndian.PutUint16(many[8:], 0xffff)
	for name, b := range map[string][]byte{"far directory": far, "orientation 9": nine,
		"text": []byte("hello, this is text")} {
		if o := exifOrientation(b); o != 1 {
			t.Errorf("%s: %d", name, o)
		}
	}
	if o := exifOrientation(many); o != 6 {
		t.Errorf("a count that is too high: %d", o)
	}
}

func TestNames(t *testing.T) {
	var c Color
	if err := c.UnmarshalText([]byte("BGR")); err != nil || c != BGR {
		t.Error(c, err)
	}
	if err := c.UnmarshalText([]byte("PINK")); err == nil || !strings.Contains(err.Error(), "RGB BGR GRAY") {
		t.Error(err)
	}
}

// A picture whose header is rejected was not drawn.
func TestRejectedPictureIsNotDrawn(t *testing.T) {
	d := NewDecoder(Limits{})
	defer d.Close()
	dst := make([]byte, 8*8*3)
	if _, err := d.Decode(jpegOf(t, scene(64, 48), 90), Target{Width: 8, Height: 8}, dst); err != nil {
		t.Fatal(err)
	}
	d.Drawn = 1 // also where the clock is too coarse
	if _, err := d.Decode([]byte("no picture"), Target{Width: 8, Height: 8}, dst); err == nil || d.Drawn != 0 {
		t.Errorf("drawn for %v, error %v", d.Drawn, err)
	}
}
