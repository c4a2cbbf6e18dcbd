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

// One call into C per picture. The size is read again here, because turbojpeg
// leaves part of dst alone when the picture is smaller than asked for.
static int mr_decode(tjhandle h, const unsigned char *src, unsigned long n,
                     int fullw, int fullh, unsigned char *dst, int w, int pitch,
                     int height, int format) {
	int gotw, goth, sub, space;
	if (tjDecompressHeader3(h, src, n, &gotw, &goth, &sub, &space) != 0)
		return MR_FATAL;
	if (gotw != fullw || goth != fullh)
		return MR_SIZE;
	if (tjDecompress2(h, src, n, dst, w, pitch, height, format, TJFLAG_LIMITSCANS) == 0)
		return 0;
	return tjGetErrorCode(h) == TJERR_WARNING ? MR_WARNING : MR_FATAL;
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

// Turbo tells whether JPEG goes through libjpeg-turbo in this build.
const Turbo = true

// turbo holds the library's handle, made on first use.
type turbo struct{ h C.tjhandle }

func (t *turbo) open() error {
	if t.h == nil {
		if t.h = C.tjInitDecompress(); t.h == nil {
			return errors.New("codec: libjpeg-turbo gave no decoder: out of memory")
		}
	}
	return nil
}

func (t *turbo) close() {
	if t.h != nil {
		C.tjDestroy(t.h)
		t.h = nil
	}
}

func (d *Decoder) decodeJPEG(b []byte, j *job) error {
	if err := d.turbo.open(); err != nil {
		return err
	}
	// The library warns of only the first oddity in a picture, and keeps going
	// with gray; a missing end is the one that must never be missed.
	if bytes.LastIndex(b, []byte{0xff, 0xd9}) < bytes.LastIndex(b, []byte{0xff, 0xda}) {
		return fmt.Errorf("codec: jpeg: %w: no end of image", ErrTruncated)
	}
	info, t := j.info, j.target
	format, m, step := C.int(C.TJPF_RGB), modelRGB, 3
	switch {
	case info.components == 4:
		format, m, step = C.TJPF_CMYK, modelCMYKNoInk, 4
	case info.components == 1 || t.Color == Gray:
		format, m, step = C.TJPF_GRAY, modelGray, 1
	}
	dw, dh := j.rect.w, j.rect.h
	if info.Orientation >= 5 {
		dw, dh = dh, dw
	}
	f := shrinkFor(info.Width, info.Height, dw, dh)
	w, h := (info.Width+f-1)/f, (info.Height+f-1)/f

	// A picture that needs nothing else is decoded where it belongs.
	if w == dw && h == dh && info.Width == w*f && info.Height == h*f && info.Orientation == 1 &&
		t.Type == UINT8 && step == t.Color.Channels() && (t.Layout == NHWC || step == 1) {
		if t.Color == BGR {
			format = C.TJPF_BGR
		}
		d.fill(t, j.rect, j.tw, j.th, j.dst)
		return d.turbojpeg(b, info, j.dst[(j.rect.y*j.tw+j.rect.x)*step:], w, j.tw*step, h, format)
	}

	d.frame = grow(d.frame, step*w*h)
	if err := d.turbojpeg(b, info, d.frame, w, step*w, h, format); err != nil {
		return err
	}
	d.src = source{shrunk: f}
	d.src.setPacked(m, d.frame, step*w, step, 1, w, h)
	return d.draw(j)
}

// turbojpeg decodes to w by h pixels at dst, rows pitch bytes apart.
func (d *Decoder) turbojpeg(b []byte, info Info, dst []byte, w, pitch, h int, format C.int) error {
	rc := C.mr_decode(d.turbo.h, (*C.uchar)(unsafe.SliceData(b)), C.ulong(len(b)), C.int(info.Width), C.int(info.Height),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(w), C.int(pitch), C.int(h), format)
	if rc == 0 {
		return nil
	}
	if rc == C.MR_SIZE {
		return fmt.Errorf("codec: jpeg: %w: two frame headers that differ", ErrCorrupt)
	}
	text := C.GoString(C.tjGetErrorStr2(d.turbo.h))
	if rc == C.MR_WARNING {
		// Cameras pad their pictures; every decoder skips that.
		if strings.Contains(text, "extraneous bytes") {
			return nil
		}
		if strings.Contains(text, "remature end") { // of file, or of a segment
			return fmt.Errorf("codec: jpeg: %w: %s", ErrTruncated, text)
		}
	}
	return fmt.Errorf("codec: jpeg: %w: %s", ErrCorrupt, text)
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
