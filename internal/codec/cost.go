package codec

import "time"

// Cost estimates the decoding time of a picture of n bytes, for deciding where to decode the picture. The estimate is
// a cost per pixel plus a cost per coded byte, measured with the slowest pictures of each kind on one core of a
// server of 2020, and rounded up. So neither a large picture in a small file nor a small picture in a large file
// counts as cheap.
func (i *Info) Cost(n int) time.Duration {
	pixels := i.Width * i.Height
	perPixel, perByte := 0, 0 // nanoseconds
	switch {
	case i.Kind == JPEG && i.progressive: // each scan goes over all blocks
		perPixel, perByte = max(4, 2*i.scans/5), 30
	case i.Kind == JPEG:
		perPixel, perByte = 2, 12
	case i.Kind == PNG:
		perPixel, perByte = 9, 12
	case i.webpLossless:
		perPixel, perByte = 12, 20
	default:
		perPixel, perByte = 10, 60
	}
	return time.Duration(perPixel*pixels + perByte*n)
}

// CostOfPixels is Cost for an uncoded picture.
func CostOfPixels(width, height int) time.Duration { return time.Duration(2 * width * height) }
