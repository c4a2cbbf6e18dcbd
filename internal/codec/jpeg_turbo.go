//go:build turbojpeg

package codec

/*
#cgo pkg-config: libturbojpeg
#cgo noescape mr_decode
#cgo nocallback mr_decode
#include <turbojpeg.h>
#include <string.h>

// Outcomes besides 0.
enum { MR_WARNING = 1, MR_FATAL = 2, MR_SIZE = 3 };

// One call into C per picture, with a new handle (0.4 us): a handle keeps the tables
// of earlier pictures, so a broken picture could affect later ones, and a picture
// without tables would be decoded with those of another client. The size is checked
// again here, because turbojpeg leaves part of dst unwritten when the picture is
// smaller than expected. text receives the library's message, textn bytes with a 0.
static int mr_decode(const unsigned char *src, unsigned long n, int fullw, int fullh,
                     unsigned char *dst, int w, int pitch, int height, int format,
                     char *text, unsigned long textn) {
	tjhandle h = tjInitDecompress();
	int gotw, goth, sub, space, rc = 0;
	if (!h) {
		strncpy(text, "out of memory", textn - 1);
		return MR_FATAL;
	}
	if (tjDecompressHeader3(h, src, n, &gotw, &goth, &sub, &space) != 0)
		rc = MR_FATAL;
	else if (gotw != fullw || goth != fullh)
		rc = MR_SIZE;
	else if (tjDecompress2(h, src, n, dst, w, pitch, height, format, TJFLAG_LIMITSCANS) != 0)
		rc = tjGetErrorCode(h) == TJERR_WARNING ? MR_WARNING : MR_FATAL;
	if (rc != 0)
		strncpy(text, tjGetErrorStr2(h), textn - 1);
	tjDestroy(h);
	return rc;
}

static int mr_encode(const unsigned char *rgb, int w, int h, int quality,
                     unsigned char *dst, unsigned long *n) {
	tjhandle t = tjInitCompress();
	int rc;
	if (!t)
		return -1;
	rc = tjCompress2(t, rgb, w, 0, h, TJPF_RGB, &dst, n, TJSAMP_420, quality, TJFLAG_NOREALLOC);
	tjDestroy(t);
	return rc;
}
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Turbo is true in builds that decode and encode JPEG with libjpeg-turbo.
const Turbo = true

func (d *Decoder) decodeJPEG(b []byte, j *job) error {
	// libjpeg-turbo reports only its first warning, and fills missing data with gray.
	// A truncated picture must be an error, so look for the end of image marker, from
	// the end, where a complete picture has it.
	end := max(bytes.LastIndex(b, []byte{0xff, 0xd9}), 0)
	if bytes.Contains(b[end:], []byte{0xff, 0xda}) {
		return fmt.Errorf("codec: jpeg: %w: no end of image", ErrTruncated)
	}
	info, t := j.info, j.target
	format, m, step := C.int(C.TJPF_RGB), modelRGB, 3
	switch {
	case info.components == 4:
		format, m, step = C.TJPF_CMYK, modelCMYKInverted, 4
	case info.components == 1 || t.Color == Gray:
		format, m, step = C.TJPF_GRAY, modelGray, 1
	}
	dw, dh := j.rect.w, j.rect.h
	if info.Orientation >= 5 {
		dw, dh = dh, dw
	}
	uw, uh := info.Upright()
	part := j.part.stored(info.Orientation, uw, uh)
	f := shrinkFor(part.Width, part.Height, dw, dh)
	for !j.whole() && f > 1 && (part.Width/f < dw || part.Height/f < dh || min(dw, dh) < 4) {
		f /= 2 // only the region's outermost pixels may be mixed with pixels outside of it
	}
	if info.sparseChroma {
		f = 1 // the library would shrink the chroma planes too
	}
	w, h := (info.Width+f-1)/f, (info.Height+f-1)/f

	// A picture that needs no conversion is decoded straight into dst.
	if j.whole() && w == dw && h == dh && info.Width == w*f && info.Height == h*f && info.Orientation == 1 &&
		t.Type == UINT8 && step == t.Color.Channels() && (t.Layout == NHWC || step == 1) {
		if t.Color == BGR {
			format = C.TJPF_BGR
		}
		d.fill(t, j.rect, j.tw, j.th, j.dst)
		return turbojpeg(b, info, j.dst[(j.rect.y*j.tw+j.rect.x)*step:], w, j.tw*step, h, format)
	}

	d.frame = grow(d.frame, step*w*h)
	if err := turbojpeg(b, info, d.frame, w, step*w, h, format); err != nil {
		return err
	}
	d.src = source{shrunk: f}
	d.src.setPacked(m, d.frame, step*w, step, 1, w, h)
	return d.draw(j)
}

// turbojpeg decodes to w by h pixels at dst, rows pitch bytes apart.
func turbojpeg(b []byte, info Info, dst []byte, w, pitch, h int, format C.int) error {
	var text [200]byte // more than the library's longest message
	rc := C.mr_decode((*C.uchar)(unsafe.SliceData(b)), C.ulong(len(b)), C.int(info.Width), C.int(info.Height),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(w), C.int(pitch), C.int(h), format,
		(*C.char)(unsafe.Pointer(&text)), C.ulong(len(text)))
	if rc == 0 {
		return nil
	}
	if rc == C.MR_SIZE {
		return fmt.Errorf("codec: jpeg: %w: two frame headers that differ", ErrCorrupt)
	}
	message := string(text[:bytes.IndexByte(text[:], 0)])
	if rc == C.MR_WARNING {
		// Cameras pad their pictures; every decoder ignores the padding.
		if strings.Contains(message, "extraneous bytes") {
			return nil
		}
		if strings.Contains(message, "remature end") { // of file, or of a segment
			return fmt.Errorf("codec: jpeg: %w: %s", ErrTruncated, message)
		}
	}
	return fmt.Errorf("codec: jpeg: %w: %s", ErrCorrupt, message)
}

func encodeJPEG(dst []byte, rgb []byte, w, h, quality int) ([]byte, error) {
	n := C.tjBufSize(C.int(w), C.int(h), C.TJSAMP_420)
	at := len(dst)
	dst = slices.Grow(dst, int(n))
	if C.mr_encode((*C.uchar)(unsafe.SliceData(rgb)), C.int(w), C.int(h), C.int(quality),
		(*C.uchar)(unsafe.SliceData(dst[at:at+int(n)])), &n) != 0 {
		return dst[:at], errors.New("codec: encode jpeg: libjpeg-turbo failed")
	}
	return dst[:at+int(n)], nil
}
