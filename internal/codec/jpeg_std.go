//go:build !turbojpeg || !cgo

package codec

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
)

// Turbo is true in builds that decode and encode JPEG with libjpeg-turbo.
const Turbo = false

func (d *Decoder) decodeJPEG(b []byte, j *job) error { return d.decodeStdJPEG(b, j) }

// scale is the factor by which the decoder shrinks a JPEG, and the size after shrinking.
func (j *job) scale() (f, w, h int) { return 1, j.info.Width, j.info.Height }

// direct reports whether a JPEG is decoded straight into dst.
func (j *job) direct(int) bool { return false }

// jpegMemory is an upper bound of the library's memory for a JPEG of this number of blocks: samples, all coefficients
// of a progressive JPEG, and pixels where the library converts samples.
func jpegMemory(info *Info, blocks int, _ bool) int {
	n := 64 * blocks
	if info.progressive {
		n += 4 * 64 * blocks
	}
	if info.components > 1 {
		n += 4 * info.Width * info.Height
	}
	return n
}

func encodeJPEG(dst []byte, rgb []byte, w, h, quality int) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	if err := jpeg.Encode(buf, toRGBA(rgb, w, h), &jpeg.Options{Quality: quality}); err != nil {
		return dst, fmt.Errorf("codec: encode jpeg: %w", err)
	}
	return buf.Bytes(), nil
}

func toRGBA(rgb []byte, w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Pix[4*i], m.Pix[4*i+1], m.Pix[4*i+2], m.Pix[4*i+3] = rgb[3*i], rgb[3*i+1], rgb[3*i+2], 255
	}
	return m
}
