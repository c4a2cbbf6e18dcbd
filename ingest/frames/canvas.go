package frames

import (
	"cmp"
	"image"
	"slices"

	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
)

// DrawnQuality is the quality of JPEGs.
const DrawnQuality = 80

// Drawable returns the outputs of a result as the overlay reads them.
func Drawable(r *stream.Result) []oip.Tensor {
	out := make([]oip.Tensor, len(r.Outputs))
	for i, t := range r.Outputs {
		out[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return out
}

// Canvas holds the memory for drawing pictures.
type Canvas struct {
	Decoder codec.Decoder // with the limits of coded pictures
	pixels  []byte        // for a frame that was scaled or is not RGB24
	rgba    *image.RGBA
	rgb     []byte
}

// Draw returns a JPEG of the frame with the models' results, in new memory. See Pixels.
func (c *Canvas) Draw(f *stream.Frame, results ...*stream.Result) ([]byte, error) {
	rgb, err := c.Pixels(f, results...)
	if err != nil {
		return nil, err
	}
	return codec.EncodeJPEG(nil, rgb, f.Width, f.Height, DrawnQuality)
}

// Pixels returns the frame with the models' results as packed RGB, in memory of the frame or the canvas, and sets the
// size of f. Outputs that cannot be drawn are left out. Pixels restores a scaled frame to the size of the source,
// because results are in pixels of the source; a large JPEG stays in the size allowed for decoding.
func (c *Canvas) Pixels(f *stream.Frame, results ...*stream.Result) ([]byte, error) {
	shrink := 1
	if f.Codec != stream.RGB24 || f.SourceWidth != 0 {
		var err error
		if shrink, err = c.decode(f); err != nil {
			return nil, err
		}
	}
	scale := 1 / float64(shrink)
	var all []overlay.Result
	for _, r := range results {
		if items, err := overlay.ReadResult(Drawable(r)); err == nil && !items.Empty() {
			all = append(all, items.Scale(scale, scale))
		}
	}
	if len(all) == 0 {
		return f.Payload[:3*f.Width*f.Height], nil
	}
	if c.rgba == nil || c.rgba.Rect != image.Rect(0, 0, f.Width, f.Height) {
		c.rgba = image.NewRGBA(image.Rect(0, 0, f.Width, f.Height))
		c.rgb = make([]byte, 3*f.Width*f.Height)
	}
	for i, o := 0, 0; i != len(c.rgb); i, o = i+3, o+4 {
		s, d := f.Payload[i:i+3:i+3], c.rgba.Pix[o:o+4:o+4]
		d[0], d[1], d[2], d[3] = s[0], s[1], s[2], 255
	}
	for _, items := range all {
		overlay.Draw(c.rgba, items, "")
	}
	for i, o := 0, 0; i != len(c.rgb); i, o = i+3, o+4 {
		s, d := c.rgba.Pix[o:o+3:o+3], c.rgb[i:i+3:i+3]
		d[0], d[1], d[2] = s[0], s[1], s[2]
	}
	return c.rgb, nil
}

// decode decodes a picture to RGB pixels, in the size before scaling. A JPEG with more pixels than allowed is decoded
// at 1/2, 1/4 or 1/8 of its size, as for the model.
func (c *Canvas) decode(f *stream.Frame) (shrink int, err error) {
	shrink = 1
	whole := codec.Target{SourceWidth: f.SourceWidth, SourceHeight: f.SourceHeight}
	width, height := cmp.Or(f.SourceWidth, f.Width), cmp.Or(f.SourceHeight, f.Height)
	raw := codec.NV12
	var info codec.Info
	switch f.Codec {
	case stream.NV12:
	case stream.RGB24:
		raw = codec.RGB24
	default:
		if info, err = c.Decoder.Limits.Header(f.Payload); err != nil {
			return shrink, err
		}
		w, h := info.Upright()
		width, height = w, h
		for most := c.Decoder.Limits.MaxDecoded; info.Kind == codec.JPEG && shrink < 8 && most > 0 &&
			width*height > most; {
			shrink *= 2
			width, height = (w+shrink-1)/shrink, (h+shrink-1)/shrink
		}
		whole.Width, whole.Height = width, height
	}
	n := whole.Size(width, height)
	c.pixels = slices.Grow(c.pixels[:0], n)[:n]
	if info != (codec.Info{}) {
		_, err = c.Decoder.DecodeInfo(f.Payload, info, whole, c.pixels)
	} else {
		_, err = c.Decoder.Convert(f.Payload, raw, f.Width, f.Height, whole, c.pixels)
	}
	f.Width, f.Height, f.Payload = width, height, c.pixels
	return shrink, err
}
