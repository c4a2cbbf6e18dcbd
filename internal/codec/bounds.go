package codec

import "fmt"

// checkDecoded refuses a picture with too many pixels to decode.
func (l Limits) checkDecoded(j *job) error {
	f, w, h := 1, j.info.Width, j.info.Height
	if j.info.Kind == JPEG {
		f, w, h = j.scale()
	}
	if l.MaxDecoded <= 0 || w*h <= l.MaxDecoded {
		return nil
	}
	how, advice := "", "send the picture smaller"
	if f > 1 {
		how = fmt.Sprintf(", at the scale 1/%d that the target needs", f)
	}
	switch {
	case j.info.Kind != JPEG:
		advice += ", or as JPEG, which is decoded at a reduced size"
	case !Turbo:
		advice += ", or build with libjpeg-turbo, which decodes at a reduced size"
	}
	return fmt.Errorf("codec: %w: %d pixels of a %v of %dx%d would be decoded%s, over limits.max_decoded_pixels=%d: "+
		"raise it, %s",
		ErrTooLarge, w*h, j.info.Kind, j.info.Width, j.info.Height, how, l.MaxDecoded, advice)
}

// memory is an upper bound of the memory for decoding besides dst, in bytes: the library's allocations, and the
// decoded pixels and rows. Tables of fixed size (less than 200 KB) are not counted.
func (j *job) memory() int {
	i := &j.info
	rows := 16 * j.tw // interpolated and converted rows of the target
	if j.info.Width > j.rect.w {
		rows += 16 * i.Width // sums of boxes
	}
	switch i.Kind {
	case JPEG:
		_, w, h := j.scale()
		step := 3
		switch {
		case i.components == 4:
			step = 4
		case i.components == 1 || j.target.Color == Gray:
			step = 1
		}
		if !Turbo || j.direct(step) {
			step = 0 // the library's memory is all
		}
		return rows + i.jpegMemory + step*w*h
	case PNG:
		n := 2 * (i.pngRowBytes(i.Width) + i.pngChannels()*i.Width)
		if i.interlaced {
			n += i.pngChannels() * i.Width * i.Height
		}
		return rows + n
	}
	n := i.webpMemory
	if LibWebP && !i.webpLossless {
		f := j.shrink()
		n += 4 * ((i.Width + f - 1) / f) * ((i.Height + f - 1) / f)
	}
	return rows + n
}

// shrink is the factor by which a library can shrink the picture.
func (j *job) shrink() int {
	info := &j.info
	dw, dh := j.rect.w, j.rect.h
	if info.Orientation >= 5 {
		dw, dh = dh, dw
	}
	uw, uh := info.Upright()
	part := j.part.stored(info.Orientation, uw, uh)
	f := shrinkFor(part.Width, part.Height, dw, dh)
	for !j.whole() && f > 1 && (part.Width/f < dw || part.Height/f < dh || min(dw, dh) < 4) {
		f /= 2 // mix only the region's outermost pixels with pixels outside
	}
	return f
}
