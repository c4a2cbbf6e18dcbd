package codec

import (
	"fmt"
	"math"
)

// Color is the order of a target's channels.
type Color uint8

// RGB and BGR have three channels, Gray (luma) has one channel.
const (
	RGB Color = iota
	BGR
	Gray
)

var colorNames = names{"RGB", "BGR", "GRAY"}

func (c Color) String() string { return colorNames.name(uint8(c)) }

// MarshalText writes the name.
func (c Color) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads RGB, BGR or GRAY.
func (c *Color) UnmarshalText(b []byte) error {
	v, err := colorNames.parse("color", b)
	*c = Color(v)
	return err
}

// Channels is 3, or 1 for Gray.
func (c Color) Channels() int {
	if c == Gray {
		return 1
	}
	return 3
}

// Layout is the order of a target's axes.
type Layout uint8

// NHWC interleaves the channels; NCHW writes a plane per channel.
const (
	NHWC Layout = iota
	NCHW
)

var layoutNames = names{"NHWC", "NCHW"}

func (l Layout) String() string { return layoutNames.name(uint8(l)) }

// MarshalText writes the name.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads NHWC or NCHW.
func (l *Layout) UnmarshalText(b []byte) error {
	v, err := layoutNames.parse("layout", b)
	*l = Layout(v)
	return err
}

// Type is a target's element type.
type Type uint8

// UINT8 is the pixel value itself; FP32 and FP16 are normalised, and little endian.
const (
	UINT8 Type = iota
	FP32
	FP16
)

var typeNames = names{"UINT8", "FP32", "FP16"}

func (t Type) String() string { return typeNames.name(uint8(t)) }

// MarshalText writes the name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads UINT8, FP32 or FP16.
func (t *Type) UnmarshalText(b []byte) error {
	v, err := typeNames.parse("type", b)
	*t = Type(v)
	return err
}

// Size is the number of bytes of an element.
func (t Type) Size() int {
	switch t {
	case FP32:
		return 4
	case FP16:
		return 2
	}
	return 1
}

// Fit is how a picture is fitted to a target of another aspect ratio.
type Fit uint8

// Stretch fills the target and ignores the aspect ratio; Letterbox keeps the aspect ratio, centres the picture and
// fills the rest.
const (
	Stretch Fit = iota
	Letterbox
)

var fitNames = names{"stretch", "letterbox"}

func (f Fit) String() string { return fitNames.name(uint8(f)) }

// MarshalText writes the name.
func (f Fit) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads stretch or letterbox.
func (f *Fit) UnmarshalText(b []byte) error {
	v, err := fitNames.parse("fit", b)
	*f = Fit(v)
	return err
}

// maxSide bounds each side of a target against overflow of the size in bytes.
const maxSide = 1 << 16

// Norm is the normalisation of FP32 and FP16 targets. A pixel p of channel c becomes
//
//	(p*Scale[c] - Mean[c]) / Std[c]
//
// Channels are in the target's order (for BGR, index 0 is blue). A zero Scale or
// Std counts as 1, so the zero Norm keeps 0..255.
type Norm struct {
	Scale, Mean, Std [3]float32
}

// Target describes the pixels to write. The zero Target is the picture in its own size, as interleaved RGB bytes.
type Target struct {
	// Width and Height in pixels; 0 takes the side from the upright picture.
	Width, Height int
	Color         Color
	Layout        Layout
	Type          Type
	Norm          Norm // not of UINT8
	Fit           Fit
	Fill          byte   // the pixel value around a letterboxed picture, before Norm
	Region        Region // part of the picture to write; Width, Height and Fit then refer to the region's size

	// SourceWidth and SourceHeight are the size of the picture before the scaling of a raw frame; both 0: the frame's
	// own size. Width and Height of 0, Fit, Region and the returned Placed all refer to the picture before scaling.
	// Only Convert reads the two fields.
	SourceWidth, SourceHeight int
}

// Validate returns an error for the first invalid field. Decode calls Validate too.
func (t *Target) Validate() error {
	switch {
	case t.Width < 0 || t.Width > maxSide:
		return fmt.Errorf("codec: target width %d: use 0 (the picture's own) to %d", t.Width, maxSide)
	case t.Height < 0 || t.Height > maxSide:
		return fmt.Errorf("codec: target height %d: use 0 (the picture's own) to %d", t.Height, maxSide)
	case t.Color > Gray:
		return fmt.Errorf("codec: target color %d: use RGB, BGR or GRAY", t.Color)
	case t.Layout > NCHW:
		return fmt.Errorf("codec: target layout %d: use NHWC or NCHW", t.Layout)
	case t.Type > FP16:
		return fmt.Errorf("codec: target type %d: use UINT8, FP32 or FP16", t.Type)
	case t.Fit > Letterbox:
		return fmt.Errorf("codec: target fit %d: use stretch or letterbox", t.Fit)
	case (t.SourceWidth == 0) != (t.SourceHeight == 0), min(t.SourceWidth, t.SourceHeight) < 0,
		max(t.SourceWidth, t.SourceHeight) > maxSide:
		return fmt.Errorf("codec: source of %d x %d: use 0 x 0 (the frame's own), or 1 to %d a side", t.SourceWidth,
			t.SourceHeight, maxSide)
	}
	if t.Type == UINT8 && t.Norm != (Norm{}) {
		return fmt.Errorf("codec: target scale, mean and std need type FP32 or FP16, not UINT8")
	}
	for c := range 3 {
		for _, v := range [...]float32{t.Norm.Scale[c], t.Norm.Mean[c], t.Norm.Std[c]} {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("codec: target scale, mean and std of channel %d must be finite", c)
			}
		}
	}
	return nil
}

// Dims is the target's width and height for an upright picture of w by h.
func (t *Target) Dims(w, h int) (tw, th int) {
	part := t.Region.orFullPicture(w, h)
	tw, th = t.Width, t.Height
	if tw == 0 {
		tw = part.Width
	}
	if th == 0 {
		th = part.Height
	}
	return tw, th
}

// Size is the number of bytes written by Decode for an upright picture of w by h.
func (t *Target) Size(w, h int) int {
	tw, th := t.Dims(w, h)
	return tw * th * t.Color.Channels() * t.Type.Size()
}

// Placed describes the place of the picture in the target. A point (x, y) in target pixels is
// (OriginX+(x-OffsetX)*ScaleX, OriginY+(y-OffsetY)*ScaleY) in pixels of the frame as sent, after EXIF rotation and
// before scaling by the sender (Target.SourceWidth).
type Placed struct {
	Width, Height    int // of the frame as sent, upright, before any scaling
	ScaleX, ScaleY   float64
	OffsetX, OffsetY float64 // of the picture, or its region, in the target
	OriginX, OriginY float64 // of the region in the frame
}

// ToFrame maps a point in target pixels to pixels of the frame as sent. Points
// in a letterbox's fill map to points outside the frame.
func (p *Placed) ToFrame(x, y float64) (float64, float64) {
	return p.OriginX + (x-p.OffsetX)*p.ScaleX, p.OriginY + (y-p.OffsetY)*p.ScaleY
}

// rect is the part of the target covered by the picture or its region.
type rect struct{ x, y, w, h int }

// place computes where in the target an upright picture of w by h lies.
func (t *Target) place(w, h int) (rect, Placed) {
	tw, th := t.Dims(w, h)
	r := rect{0, 0, tw, th}
	frameW, frameH := w, h
	part := t.Region.orFullPicture(w, h)
	w, h = part.Width, part.Height
	if t.Fit == Letterbox {
		if tw*h <= th*w { // the width is the limit
			r.h = max((2*h*tw+w)/(2*w), 1)
		} else {
			r.w = max((2*w*th+h)/(2*h), 1)
		}
		r.w, r.h = min(r.w, tw), min(r.h, th)
		r.x, r.y = (tw-r.w)/2, (th-r.h)/2
	}
	return r, Placed{
		Width: frameW, Height: frameH,
		ScaleX: float64(w) / float64(r.w), ScaleY: float64(h) / float64(r.h),
		OffsetX: float64(r.x), OffsetY: float64(r.y),
		OriginX: float64(part.X), OriginY: float64(part.Y),
	}
}
