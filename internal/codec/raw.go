package codec

import (
	"cmp"
	"fmt"

	"millrace/internal/codec/luma"
)

// RawFormat is the memory layout of an uncompressed frame, rows without padding.
type RawFormat uint8

// RGB24 is three bytes a pixel. NV12 is a plane of luma, then a plane of pairs (blue and red difference) at half the
// size rounded up, in BT.601 limited range. Gray8 is one byte a pixel, full range.
const (
	RGB24 RawFormat = iota
	NV12
	Gray8
)

var rawNames = names{"RGB24", "NV12", "GRAY8"}

func (f RawFormat) String() string { return rawNames.name(uint8(f)) }

// Size is the bytes of a frame of w by h; 0 when the format is unknown or a side
// is not positive.
func (f RawFormat) Size(w, h int) int {
	if w <= 0 || h <= 0 || w > maxSide || h > maxSide {
		return 0
	}
	switch f {
	case RGB24:
		return 3 * w * h
	case NV12:
		return w*h + 2*((w+1)/2)*((h+1)/2)
	case Gray8:
		return w * h
	}
	return 0
}

// Convert is Decode for a raw frame of w by h. The length of b must be f.Size(w, h).
func (d *Decoder) Convert(b []byte, f RawFormat, w, h int, t Target, dst []byte) (Placed, error) {
	d.Drawn = 0
	want := f.Size(w, h)
	if want == 0 {
		return Placed{}, fmt.Errorf("codec: raw frame %v %dx%d: use RGB24, NV12 or GRAY8 with sides of 1 to %d", f, w,
			h, maxSide)
	}
	if err := d.Limits.check(w, h); err != nil {
		return Placed{}, err
	}
	if len(b) != want {
		return Placed{}, fmt.Errorf("codec: raw frame has %d bytes, %v %dx%d is %d: %w", len(b), f, w, h, want,
			ErrTruncated)
	}
	j := job{info: Info{Width: cmp.Or(t.SourceWidth, w), Height: cmp.Or(t.SourceHeight, h), Orientation: 1},
		target: &t, dst: dst}
	if err := j.place(j.info.Width, j.info.Height); err != nil {
		return Placed{}, err
	}
	if f == RGB24 && j.whole() && w == j.tw && h == j.th && t.Color == RGB && t.Layout == NHWC && t.Type == UINT8 {
		copy(dst, b)
		return j.placed, nil
	}
	if f == NV12 && j.whole() && j.rect == (rect{0, 0, w, h}) && w == j.tw && h == j.th && t.Color == Gray &&
		t.Type == UINT8 {
		luma.Full(dst, b[:w*h]) // with one channel, all layouts are the same
		return j.placed, nil
	}
	d.src = source{}
	switch f {
	case RGB24:
		d.src.setPacked(modelRGB, b, 3*w, 3, 1, w, h)
	case Gray8:
		d.src.setPacked(modelGray, b, w, 1, 1, w, h)
	case NV12:
		cw, ch := (w+1)/2, (h+1)/2
		d.src.model, d.src.w, d.src.h = modelYCbCrLimited, w, h
		d.src.planes[0] = plane{pix: b, stride: w, step: 1, w: w, h: h, subX: 1, subY: 1}
		d.src.planes[1] = plane{pix: b[w*h:], stride: 2 * cw, step: 2, w: cw, h: ch, subX: 2, subY: 2}
		d.src.planes[2] = plane{pix: b[w*h+1:], stride: 2 * cw, step: 2, w: cw, h: ch, subX: 2, subY: 2}
	}
	err := d.draw(&j)
	d.src = source{}
	return j.placed, err
}
