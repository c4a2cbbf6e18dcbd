package codec

import (
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// pictureError wraps a library's error with one of the Err variables.
func pictureError(k Kind, err error) error {
	kind := ErrCorrupt
	var ju jpeg.UnsupportedError
	var pu png.UnsupportedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		kind = ErrTruncated
	case errors.As(err, &ju), errors.As(err, &pu):
		kind = ErrUnsupported
	}
	return fmt.Errorf("codec: %v: %w: %w", k, kind, err)
}

func (d *Decoder) decodePNG(b []byte, j *job) error {
	d.reader.Reset(b)
	m, err := png.Decode(&d.reader)
	d.reader.Reset(nil)
	if err != nil {
		return pictureError(PNG, err)
	}
	return d.drawImage(m, j)
}

func (d *Decoder) decodeWebP(b []byte, j *job) error {
	if j.info.animated {
		return d.decodeAnimated(b, j)
	}
	d.reader.Reset(b)
	m, err := webp.Decode(&d.reader)
	d.reader.Reset(nil)
	if err != nil {
		return pictureError(WebP, err)
	}
	return d.drawImage(m, j)
}

// drawImage renders a picture that a library decoded. It composites alpha in place,
// because the picture is not used elsewhere.
func (d *Decoder) drawImage(m image.Image, j *job) error {
	if err := sameSize(m, j.info); err != nil {
		return err
	}
	w, h := j.info.Width, j.info.Height
	s := &d.src
	*s = source{}
	switch m := m.(type) {
	case *image.YCbCr:
		s.setYCbCr(m, j.info.Kind)
	case *image.NYCbCrA:
		s.setYCbCr(&m.YCbCr, j.info.Kind)
		s.alpha = plane{pix: m.A, stride: m.AStride, step: 1, w: w, h: h, subX: 1, subY: 1}
		s.hasAlpha = true
	case *image.Gray:
		s.setPacked(modelGray, m.Pix, m.Stride, 1, 1, w, h)
	case *image.Gray16: // big endian: the first byte is the high one
		s.setPacked(modelGray, m.Pix, m.Stride, 2, 1, w, h)
	case *image.RGBA: // opaque, or premultiplied, which composites on black
		s.setPacked(modelRGB, m.Pix, m.Stride, 4, 1, w, h)
	case *image.NRGBA:
		premultiply(m.Pix)
		s.setPacked(modelRGB, m.Pix, m.Stride, 4, 1, w, h)
	case *image.RGBA64:
		s.setPacked(modelRGB, m.Pix, m.Stride, 8, 2, w, h)
	case *image.NRGBA64:
		d.frame = grow(d.frame, 4*w*h)
		for i := range d.frame {
			d.frame[i] = m.Pix[2*i]
		}
		premultiply(d.frame)
		s.setPacked(modelRGB, d.frame, 4*w, 4, 1, w, h)
	case *image.Paletted:
		d.expandPalette(m)
		s.setPacked(modelRGB, d.frame, 3*w, 3, 1, w, h)
	case *image.CMYK:
		s.setPacked(modelCMYK, m.Pix, m.Stride, 4, 1, w, h)
	default:
		return fmt.Errorf("codec: %v: %w: pixels of type %T", j.info.Kind, ErrUnsupported, m)
	}
	return d.draw(j)
}

func (s *source) setYCbCr(m *image.YCbCr, k Kind) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	s.model, s.w, s.h = modelYCbCr, w, h
	if k == WebP {
		s.model = modelYCbCrLimited // the library does not expand the range of lossy WebP
	}
	sx, sy := 1, 1
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		sx = 2
	case image.YCbCrSubsampleRatio420:
		sx, sy = 2, 2
	case image.YCbCrSubsampleRatio440:
		sy = 2
	case image.YCbCrSubsampleRatio411:
		sx = 4
	case image.YCbCrSubsampleRatio410:
		sx, sy = 4, 2
	}
	s.planes[0] = plane{pix: m.Y, stride: m.YStride, step: 1, w: w, h: h, subX: 1, subY: 1}
	cw, ch := (w+sx-1)/sx, (h+sy-1)/sy
	s.planes[1] = plane{pix: m.Cb, stride: m.CStride, step: 1, w: cw, h: ch, subX: sx, subY: sy}
	s.planes[2] = plane{pix: m.Cr, stride: m.CStride, step: 1, w: cw, h: ch, subX: sx, subY: sy}
}

// expandPalette writes the colours of a paletted picture, on black, into d.frame.
func (d *Decoder) expandPalette(m *image.Paletted) {
	var lut [256][3]byte
	for i, c := range m.Palette {
		r, g, b, _ := c.RGBA() // premultiplied
		lut[i] = [3]byte{byte(r >> 8), byte(g >> 8), byte(b >> 8)}
	}
	w, h := m.Rect.Dx(), m.Rect.Dy()
	d.frame = grow(d.frame, 3*w*h)
	out := d.frame
	for y := range h {
		for _, v := range m.Pix[y*m.Stride : y*m.Stride+w] {
			c := &lut[v]
			out[0], out[1], out[2] = c[0], c[1], c[2]
			out = out[3:]
		}
	}
}
