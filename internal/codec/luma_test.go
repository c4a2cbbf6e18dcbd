package codec

import (
	"bytes"
	"testing"
)

// The luma of a frame in the target's size is converted to full range, whatever the chroma; with a scaled frame too.
func TestLumaInTheTargetsSize(t *testing.T) {
	const w, h = 19, 7
	b := make([]byte, NV12.Size(w, h))
	for i := range b {
		b[i] = byte(i * 13)
	}
	want := make([]byte, w*h)
	for i := range want {
		want[i] = clamp((76309*(int32(b[i])-16) + half) >> 16)
	}
	for _, source := range [][2]int{{0, 0}, {1280, 720}} {
		var d Decoder
		got := make([]byte, w*h)
		placed, err := d.Convert(b, NV12, w, h, Target{Width: w, Height: h, Color: Gray, SourceWidth: source[0],
			SourceHeight: source[1]}, got)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v, %v; want %v", err, got, want)
		}
		if source[0] != 0 && (placed.Width != 1280 || placed.ScaleX*w != 1280) || source[0] == 0 && placed.ScaleX != 1 {
			t.Errorf("%+v", placed)
		}
	}
}

func BenchmarkLumaInTheTargetsSize(b *testing.B) {
	var d Decoder
	frame, dst := make([]byte, NV12.Size(320, 240)), make([]byte, 320*240)
	for b.Loop() {
		_, _ = d.Convert(frame, NV12, 320, 240, Target{Width: 320, Height: 240, Color: Gray}, dst)
	}
}
