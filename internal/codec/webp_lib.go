//go:build libwebp && cgo

package codec

/*
#cgo !static pkg-config: libwebp
#cgo static LDFLAGS: -l:libwebp.a -lm
#cgo noescape mr_webp
#cgo nocallback mr_webp
#include <time.h>
#include <webp/decode.h>

// Outcomes besides those of the library.
enum { MR_WEBP_SLOW = -1, MR_WEBP_SIZE = -2 };

static long long mr_webp_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// mr_webp decodes to w by h pixels of RGBA, premultiplied, at dst. The library gets the
// bytes in pieces, and the clock is read between them; limit is in nanoseconds, 0 for none.
static int mr_webp(const unsigned char *src, size_t n, int fullw, int fullh,
                   unsigned char *dst, int w, int h, long long limit) {
	enum { piece = 16 << 10 };
	WebPDecoderConfig c;
	long long until = limit > 0 ? mr_webp_now() + limit : 0;
	int rc;
	if (!WebPInitDecoderConfig(&c))
		return VP8_STATUS_INVALID_PARAM;
	if ((rc = WebPGetFeatures(src, n, &c.input)) != VP8_STATUS_OK)
		return rc;
	if (c.input.width != fullw || c.input.height != fullh)
		return MR_WEBP_SIZE;
	if (w != fullw || h != fullh) {
		c.options.use_scaling = 1;
		c.options.scaled_width = w;
		c.options.scaled_height = h;
	}
	c.output.colorspace = MODE_rgbA;
	c.output.is_external_memory = 1;
	c.output.u.RGBA.rgba = dst;
	c.output.u.RGBA.stride = 4 * w;
	c.output.u.RGBA.size = (size_t)4 * w * h;
	WebPIDecoder *d = WebPIDecode(NULL, 0, &c);
	if (!d)
		return VP8_STATUS_OUT_OF_MEMORY;
	rc = VP8_STATUS_SUSPENDED;
	for (size_t have = 0; have < n && rc == VP8_STATUS_SUSPENDED;) {
		if (until && mr_webp_now() > until) {
			rc = MR_WEBP_SLOW;
			break;
		}
		have = n - have > piece ? have + piece : n;
		rc = WebPIUpdate(d, src, have);
	}
	WebPIDelete(d);
	WebPFreeDecBuffer(&c.output);
	return rc;
}
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// LibWebP is true in builds that decode WebP with libwebp.
const LibWebP = true

// decodeStillWebP decodes a lossy picture, and shrinks the picture during decoding. A lossless picture goes to
// x/image/webp, because libwebp would allocate tables of several KB for each group of codes, with up to 65,536 groups
// in some hundred KB.
func (d *Decoder) decodeStillWebP(b []byte, j *job) error {
	if j.info.webpLossless {
		return d.decodeGoWebP(b, j)
	}
	f := j.shrink()
	w, h := (j.info.Width+f-1)/f, (j.info.Height+f-1)/f
	limit := time.Duration(0)
	if !d.deadline.IsZero() {
		limit = max(time.Until(d.deadline), 1)
	}
	d.frame = grow(d.frame, 4*w*h)
	switch rc := C.mr_webp((*C.uchar)(unsafe.SliceData(b)), C.size_t(len(b)), C.int(j.info.Width), C.int(j.info.Height),
		(*C.uchar)(unsafe.SliceData(d.frame)), C.int(w), C.int(h), C.longlong(limit)); rc {
	case C.VP8_STATUS_OK:
	case C.MR_WEBP_SLOW:
		return ErrSlow
	case C.MR_WEBP_SIZE:
		return fmt.Errorf("codec: webp: %w: two headers that differ", ErrCorrupt)
	case C.VP8_STATUS_SUSPENDED, C.VP8_STATUS_NOT_ENOUGH_DATA:
		return fmt.Errorf("codec: webp: %w", ErrTruncated)
	case C.VP8_STATUS_UNSUPPORTED_FEATURE:
		return fmt.Errorf("codec: webp: %w", ErrUnsupported)
	default:
		return fmt.Errorf("codec: webp: %w: libwebp says %d", ErrCorrupt, int(rc))
	}
	// The library's pixels need not cover whole boxes, so the picture is drawn like a scaled frame.
	d.src = source{}
	d.src.setPacked(modelRGB, d.frame, 4*w, 4, 1, w, h)
	return d.draw(j)
}
