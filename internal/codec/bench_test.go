package codec

import "testing"

func benchJPEG(b *testing.B, w, h int, tg Target) {
	d := NewDecoder(Limits{})
	defer d.Close()
	pic := jpegOf(b, scene(w, h), 90)
	dst := make([]byte, tg.Size(w, h))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(pic, tg, dst); err != nil {
			b.Fatal(err)
		}
	}
}

var nchw224 = Target{Width: 224, Height: 224, Layout: NCHW, Type: FP32}

func BenchmarkJPEG640x480(b *testing.B)       { benchJPEG(b, 640, 480, Target{}) }
func BenchmarkJPEG640x480Half(b *testing.B)   { benchJPEG(b, 640, 480, Target{Width: 320, Height: 240}) }
func BenchmarkJPEG640x480To224(b *testing.B)  { benchJPEG(b, 640, 480, nchw224) }
func BenchmarkJPEG1280x720To224(b *testing.B) { benchJPEG(b, 1280, 720, nchw224) }
func BenchmarkJPEG640x480ToGray96(b *testing.B) {
	benchJPEG(b, 640, 480, Target{Width: 96, Height: 96, Color: Gray})
}

// A detector's decoding of a photo, busier than the test scene.
func benchPhoto(b *testing.B, w, h int) {
	tg := Target{Width: w, Height: h, Layout: NCHW, Type: FP32,
		Norm: Norm{Scale: [3]float32{1. / 255, 1. / 255, 1. / 255}}}
	d := NewDecoder(Limits{})
	defer d.Close()
	pic := jpegOf(b, busy(640, 480), 85)
	dst := make([]byte, tg.Size(640, 480))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(pic, tg, dst); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(pic)), "JPEG-B")
}

func BenchmarkPhotoTo128(b *testing.B)     { benchPhoto(b, 128, 128) }
func BenchmarkPhotoTo320x240(b *testing.B) { benchPhoto(b, 320, 240) }

func benchRaw(b *testing.B, f RawFormat, tg Target) {
	d := NewDecoder(Limits{})
	raw := make([]byte, f.Size(640, 480))
	dst := make([]byte, tg.Size(640, 480))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Convert(raw, f, 640, 480, tg, dst); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRGB24To224(b *testing.B)  { benchRaw(b, RGB24, nchw224) }
func BenchmarkRGB24To400(b *testing.B)  { benchRaw(b, RGB24, Target{Width: 400, Height: 400}) }
func BenchmarkRGB24Floats(b *testing.B) { benchRaw(b, RGB24, Target{Layout: NCHW, Type: FP32}) }
func BenchmarkNV12To224(b *testing.B)   { benchRaw(b, NV12, nchw224) }
func BenchmarkNV12Full(b *testing.B)    { benchRaw(b, NV12, Target{}) }

func BenchmarkHeader(b *testing.B) {
	pic := jpegOf(b, scene(640, 480), 90)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Header(pic); err != nil {
			b.Fatal(err)
		}
	}
}
