package codec

import "time"

// Cost estimates how long decoding a picture of n bytes takes, to decide where it is decoded. It is
// what the kinds of pictures that take longest took on one core of a server of 2020, rounded up: a
// size costs as much as each coded byte of it can make it cost, so that neither a small file that
// is a large picture nor a small picture in a large file is taken for cheap.
func (i *Info) Cost(n int) time.Duration {
	pixels := i.Width * i.Height
	perPixel, perByte := 0, 0 // nanoseconds
	switch {
	case i.Kind == JPEG && i.progressive: // each scan goes over all blocks
		perPixel, perByte = max(4, 2*i.scans/5), 30
	case i.Kind == JPEG:
		perPixel, perByte = 2, 12
	case i.Kind == PNG:
		perPixel, perByte = 4, 6
	case i.webpLossless:
		perPixel, perByte = 12, 20
	default:
		perPixel, perByte = 10, 60
	}
	return time.Duration(perPixel*pixels + perByte*n)
}

// CostOfPixels is Cost for a picture that is not coded.
func CostOfPixels(width, height int) time.Duration { return time.Duration(2 * width * height) }
