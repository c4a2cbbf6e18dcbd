//go:build turbojpeg && cgo

package codec

/*
#cgo !static pkg-config: libjpeg
#cgo static LDFLAGS: -l:libjpeg.a
#cgo noescape mr_decode
#cgo nocallback mr_decode
#cgo noescape mr_encode
#cgo nocallback mr_encode
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <jpeglib.h>
#include <jerror.h>

#ifndef LIBJPEG_TURBO_VERSION
#error "the build tag turbojpeg needs the header files of libjpeg-turbo (Debian: libjpeg62-turbo-dev)"
#endif

// Outcomes besides 0.
enum { MR_CORRUPT = 1, MR_SHORT = 2, MR_SIZE = 3, MR_SLOW = 4, MR_MEMORY = 5 };

// One call into C per picture, with a new decompressor: one that is kept has the tables
// of earlier pictures, so a broken picture could affect later ones, and a picture
// without tables would be decoded with those of another client.
struct mr_state {
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress;
	jmp_buf failed;
	int outcome;
	long long until; // nanoseconds; with a limit only
	char *text;      // the library's message, JMSG_LENGTH_MAX bytes
};

static long long mr_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void mr_exit(j_common_ptr c) {
	struct mr_state *s = (struct mr_state *)c->err;
	int code = c->err->msg_code;
	s->outcome = code == JERR_OUT_OF_MEMORY ? MR_MEMORY : MR_CORRUPT;
	c->err->format_message(c, s->text);
	longjmp(s->failed, 1);
}

// The first warning ends decoding: the library would fill missing data with gray. Cameras
// pad their pictures, and every decoder ignores the padding.
static void mr_message(j_common_ptr c, int level) {
	struct mr_state *s = (struct mr_state *)c->err;
	int code = c->err->msg_code;
	if (level >= 0 || code == JWRN_EXTRANEOUS_DATA)
		return;
	s->outcome = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ? MR_SHORT : MR_CORRUPT;
	c->err->format_message(c, s->text);
	longjmp(s->failed, 1);
}

// Called for each row of blocks of each scan, and for each row of pixels.
static void mr_progress(j_common_ptr c) {
	struct mr_state *s = (struct mr_state *)c->err;
	if (mr_now() > s->until) {
		s->outcome = MR_SLOW;
		longjmp(s->failed, 1);
	}
}

static void mr_start(struct mr_state *s, char *text) {
	memset(s, 0, sizeof *s);
	jpeg_std_error(&s->errors);
	s->errors.error_exit = mr_exit;
	s->errors.emit_message = mr_message;
	s->progress.progress_monitor = mr_progress;
	s->text = text;
}

// limit is in nanoseconds, 0 for none. memory bounds the coefficients of a picture of several scans, in bytes: the
// library has no bound of its own.
static int mr_decode(const unsigned char *src, unsigned long n, int fullw, int fullh,
                     unsigned char *dst, int w, int pitch, int height, int shrink, int space,
                     long long limit, long memory, char *text) {
	struct mr_state s;
	struct jpeg_decompress_struct d;
	mr_start(&s, text);
	d.err = &s.errors;
	if (setjmp(s.failed)) {
		jpeg_destroy_decompress(&d);
		return s.outcome;
	}
	memset((char *)&d + sizeof d.err, 0, sizeof d - sizeof d.err); // so that it can be destroyed
	jpeg_create_decompress(&d);
	if (limit > 0) {
		d.progress = &s.progress;
		s.until = mr_now() + limit;
	}
	jpeg_mem_src(&d, src, n);
	jpeg_read_header(&d, TRUE);
	d.scale_num = 1;
	d.scale_denom = shrink;
	d.out_color_space = space;
	jpeg_calc_output_dimensions(&d);
	if ((int)d.image_width != fullw || (int)d.image_height != fullh ||
	    (int)d.output_width != w || (int)d.output_height != height) {
		jpeg_destroy_decompress(&d);
		return MR_SIZE;
	}
	if (jpeg_has_multiple_scans(&d)) {
		long most = 0;
		for (int i = 0; i < d.num_components; i++) {
			jpeg_component_info *c = &d.comp_info[i];
			long w = c->width_in_blocks + c->h_samp_factor - 1, h = c->height_in_blocks + c->v_samp_factor - 1;
			most += (w - w % c->h_samp_factor) * (h - h % c->v_samp_factor) * (long)sizeof(JBLOCK);
		}
		if (most > memory) {
			jpeg_destroy_decompress(&d);
			return MR_MEMORY;
		}
	}
	jpeg_start_decompress(&d);
	while (d.output_scanline < d.output_height) {
		JSAMPROW rows[16];
		int k = 0;
		for (; k < 16 && d.output_scanline + k < d.output_height; k++)
			rows[k] = dst + (size_t)(d.output_scanline + k) * pitch;
		jpeg_read_scanlines(&d, rows, k);
	}
	jpeg_finish_decompress(&d);
	jpeg_destroy_decompress(&d);
	return 0;
}

static void mr_dst_begin(j_compress_ptr c) {}
static boolean mr_dst_full(j_compress_ptr c) {
	ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
	return FALSE;
}

// *n is the size of dst, and then the bytes that were written.
static int mr_encode(const unsigned char *rgb, int w, int h, int quality,
                     unsigned char *dst, unsigned long *n, char *text) {
	struct mr_state s;
	struct jpeg_compress_struct c;
	struct jpeg_destination_mgr to;
	mr_start(&s, text);
	c.err = &s.errors;
	if (setjmp(s.failed)) {
		jpeg_destroy_compress(&c);
		return s.outcome;
	}
	memset((char *)&c + sizeof c.err, 0, sizeof c - sizeof c.err);
	jpeg_create_compress(&c);
	to.next_output_byte = dst;
	to.free_in_buffer = *n;
	to.init_destination = mr_dst_begin;
	to.empty_output_buffer = mr_dst_full;
	to.term_destination = mr_dst_begin;
	c.dest = &to;
	c.image_width = w;
	c.image_height = h;
	c.input_components = 3;
	c.in_color_space = JCS_EXT_RGB;
	jpeg_set_defaults(&c); // 4:2:0
	jpeg_set_quality(&c, quality, TRUE);
	c.dct_method = quality >= 96 ? JDCT_ISLOW : JDCT_FASTEST;
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height) {
		JSAMPROW row = (JSAMPROW)rgb + (size_t)c.next_scanline * w * 3;
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	*n -= to.free_in_buffer;
	jpeg_destroy_compress(&c);
	return 0;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// Turbo is true in builds that decode and encode JPEG with libjpeg-turbo.
const Turbo = true

// scale is the factor by which the decoder shrinks a JPEG, and the size after shrinking.
func (j *job) scale() (f, w, h int) {
	info := &j.info
	f = j.shrink()
	if info.sparseChroma {
		f = 1 // the library would shrink the chroma planes too
	}
	return f, (info.Width + f - 1) / f, (info.Height + f - 1) / f
}

// direct reports whether a JPEG of step bytes a pixel needs no conversion, and so is decoded straight into dst.
func (j *job) direct(step int) bool {
	f, w, h := j.scale()
	t, info := j.target, &j.info
	return j.whole() && w == j.rect.w && h == j.rect.h && info.Width == w*f && info.Height == h*f &&
		info.Orientation == 1 &&
		t.Type == UINT8 && step == t.Color.Channels() && (t.Layout == NHWC || step == 1)
}

// jpegMemory is an upper bound of the library's memory for a JPEG of this number of blocks: rows of each component,
// and all coefficients of pictures with several scans.
func jpegMemory(info *Info, blocks int, scans bool) int {
	n := 256<<10 + 128*info.Width
	if scans {
		n += 2 * 64 * blocks
	}
	return n
}

func (d *Decoder) decodeJPEG(b []byte, j *job) error {
	info, t := j.info, j.target
	space, m, step := C.int(C.JCS_EXT_RGB), modelRGB, 3
	switch {
	case info.components == 4:
		space, m, step = C.JCS_CMYK, modelCMYKInverted, 4
	case info.components == 1 || t.Color == Gray:
		space, m, step = C.JCS_GRAYSCALE, modelGray, 1
	}
	f, w, h := j.scale()
	if j.direct(step) {
		if t.Color == BGR {
			space = C.JCS_EXT_BGR
		}
		d.fill(t, j.rect, j.tw, j.th, j.dst)
		return d.turbo(b, info, j.dst[(j.rect.y*j.tw+j.rect.x)*step:], w, j.tw*step, h, f, space)
	}

	d.frame = grow(d.frame, step*w*h)
	if err := d.turbo(b, info, d.frame, w, step*w, h, f, space); err != nil {
		return err
	}
	d.src = source{shrunk: f}
	d.src.setPacked(m, d.frame, step*w, step, 1, w, h)
	return d.draw(j)
}

// turbo decodes to w by h pixels at dst, rows pitch bytes apart, shrunk by f.
func (d *Decoder) turbo(b []byte, info Info, dst []byte, w, pitch, h, f int, space C.int) error {
	limit := time.Duration(0)
	if !d.deadline.IsZero() {
		limit = max(time.Until(d.deadline), 1)
	}
	var text [C.JMSG_LENGTH_MAX]byte
	rc := C.mr_decode((*C.uchar)(unsafe.SliceData(b)), C.ulong(len(b)), C.int(info.Width), C.int(info.Height),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(w), C.int(pitch), C.int(h), C.int(f), space,
		C.longlong(limit), C.long(info.jpegMemory), (*C.char)(unsafe.Pointer(&text)))
	message := func() string { return string(text[:bytes.IndexByte(text[:], 0)]) }
	switch rc {
	case 0:
		return nil
	case C.MR_SIZE:
		return fmt.Errorf("codec: jpeg: %w: two frame headers that differ", ErrCorrupt)
	case C.MR_SLOW:
		return ErrSlow
	case C.MR_MEMORY:
		return fmt.Errorf("codec: jpeg: %w: its scans need more memory than its header says", ErrUnsupported)
	case C.MR_SHORT: // the file, or a segment
		return fmt.Errorf("codec: jpeg: %w: %s", ErrTruncated, message())
	}
	return fmt.Errorf("codec: jpeg: %w: %s", ErrCorrupt, message())
}

func encodeJPEG(dst []byte, rgb []byte, w, h, quality int) ([]byte, error) {
	// An upper bound of the library's output, by the formula of its function tjBufSize.
	n := C.ulong(3*((w+15)&^15)*((h+15)&^15) + 2048)
	at := len(dst)
	dst = slices.Grow(dst, int(n))
	var text [C.JMSG_LENGTH_MAX]byte
	if C.mr_encode((*C.uchar)(unsafe.SliceData(rgb)), C.int(w), C.int(h), C.int(quality),
		(*C.uchar)(unsafe.SliceData(dst[at:at+int(n)])), &n, (*C.char)(unsafe.Pointer(&text))) != 0 {
		return dst[:at], fmt.Errorf("codec: encode jpeg: libjpeg-turbo failed: %s",
			string(text[:bytes.IndexByte(text[:], 0)]))
	}
	return dst[:at+int(n)], nil
}
