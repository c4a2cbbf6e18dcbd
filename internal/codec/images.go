package codec

import (
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"

	"golang.org/x/image/webp"
)

// pictureError wraps a library's error with one of the Err variables.
func pictureError(k Kind, err error) error {
	kind := ErrCorrupt
	var ju jpeg.UnsupportedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		kind = ErrTruncated
	case errors.As(err, &ju):
		kind = ErrUnsupported
	}
	return fmt.Errorf("codec: %v: %w: %w", k, kind, err)
}

func (d *Decoder) decodeWebP(b []byte, j *job) error {
	if j.info.animated {
		return d.decodeAnimated(b, j)
	}
	return d.decodeStillWebP(b, j)
}

// decodeGoWebP decodes a WebP with x/image/webp.
func (d *Decoder) decodeGoWebP(b []byte, j *job) error {
	d.reader.Reset(b)
	m, err := webp.Decode(&timedReader{&d.reader, d})
	d.reader.Reset(nil)
	if err != nil {
		return pictureError(WebP, err)
	}
	return d.drawImage(m, j)
}

// drawImage renders a picture decoded by a library. drawImage composites alpha in place, because the picture is not
// used elsewhere.
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
	case *image.RGBA: // opaque, or premultiplied, i.e. composited on black
		s.setPacked(modelRGB, m.Pix, m.Stride, 4, 1, w, h)
	case *image.NRGBA:
		premultiply(m.Pix)
		s.setPacked(modelRGB, m.Pix, m.Stride, 4, 1, w, h)
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
