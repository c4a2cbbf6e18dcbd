//go:build !turbojpeg

package codec

import (
	"bytes"
	"fmt"
	"image/jpeg"
)

// Turbo tells whether JPEG goes through libjpeg-turbo in this build.
const Turbo = false

func (d *Decoder) decodeJPEG(b []byte, j *job) error { return d.decodeStdJPEG(b, j) }

func encodeJPEG(dst []byte, rgb []byte, w, h, quality int) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	if err := jpeg.Encode(buf, toRGBA(rgb, w, h), &jpeg.Options{Quality: quality}); err != nil {
		return dst, fmt.Errorf("codec: encode jpeg: %w", err)
	}
	return buf.Bytes(), nil
}
