package codec

import "fmt"

// EncodeJPEG appends a JPEG of w by h pixels, interleaved RGB, to dst and returns the extended slice; quality is 1 to
// 100. Safe for concurrent use.
func EncodeJPEG(dst []byte, rgb []byte, w, h, quality int) ([]byte, error) {
	if err := checkRGB(rgb, w, h); err != nil {
		return dst, err
	}
	if quality < 1 || quality > 100 {
		return dst, fmt.Errorf("codec: encode jpeg: quality %d: use 1 to 100", quality)
	}
	return encodeJPEG(dst, rgb, w, h, quality)
}

func checkRGB(rgb []byte, w, h int) error {
	// 65,500 is the largest side of a JPEG of libjpeg-turbo.
	if w < 1 || h < 1 || w > 65500 || h > 65500 {
		return fmt.Errorf("codec: encode %dx%d: use sides of 1 to 65500", w, h)
	}
	if len(rgb) != 3*w*h {
		return fmt.Errorf("codec: encode %dx%d: rgb has %d bytes, needs %d", w, h, len(rgb), 3*w*h)
	}
	return nil
}
