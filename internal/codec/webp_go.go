//go:build !libwebp || !cgo

package codec

// LibWebP is true in builds that decode WebP with libwebp.
const LibWebP = false

func (d *Decoder) decodeStillWebP(b []byte, j *job) error { return d.decodeGoWebP(b, j) }
