package codec

import (
	"bytes"
	"fmt"
	"image"
)

// maxKept bounds the scratch memory that a Decoder keeps between pictures: one
// huge picture must not pin its frame for good.
const maxKept = 32 << 20

// Decoder decodes pictures into targets. It keeps scratch memory and
// interpolation tables, so it is for one goroutine at a time; make one per
// goroutine. It holds nothing that the garbage collector does not free. The zero Decoder is ready, under the default limits.
//
// After the first picture of a size, Decode of a JPEG (with the turbojpeg build)
// and Convert allocate nothing. PNG, WebP and image/jpeg allocate the decoded
// picture in their libraries.
type Decoder struct {
	Limits Limits

	frame    []byte
	axes     [maxAxes]axis
	axisUses uint64
	samplers [5]sampler
	lines    [4][]byte
	blank    []byte
	lut      *[3][256]uint32
	lutFor   Norm
	wantLuma bool
	src      source
	reader   bytes.Reader
}

// NewDecoder makes a Decoder with limits.
func NewDecoder(l Limits) *Decoder { return &Decoder{Limits: l} }

// Close lets go of the scratch memory. It may be called twice, and the Decoder
// may be used again afterwards.
func (d *Decoder) Close() { *d = Decoder{Limits: d.Limits} }

// Decode decodes the picture b into dst, whose length must be what t.Size says
// for the upright picture (Header tells the size). On an error dst may be half
// written. Errors wrap ErrUnknown, ErrTruncated, ErrCorrupt, ErrUnsupported or
// ErrTooLarge when the picture is at fault, ErrRegion when t.Region is no part of it.
// A region of a JPEG costs the whole picture's decoding, at the scale that the
// region needs.
func (d *Decoder) Decode(b []byte, t Target, dst []byte) (Placed, error) {
	info, err := d.Limits.Header(b)
	if err != nil {
		return Placed{}, err
	}
	return d.DecodeInfo(b, info, t, dst)
}

// DecodeInfo is Decode for a caller that has the header already. info must be
// Header's of the same bytes, under this Decoder's limits.
func (d *Decoder) DecodeInfo(b []byte, info Info, t Target, dst []byte) (Placed, error) {
	w, h := info.Upright()
	j := job{info: info, target: &t, dst: dst}
	if err := j.place(w, h); err != nil {
		return Placed{}, err
	}
	if err := d.decode(b, &j); err != nil {
		return Placed{}, err
	}
	return j.placed, nil
}

// job is one picture on its way to its place.
type job struct {
	info   Info
	target *Target
	dst    []byte
	part   Region // of the upright picture: the target's, filled in
	rect   rect
	tw, th int
	placed Placed
}

func (j *job) place(w, h int) error {
	if err := j.target.Validate(); err != nil {
		return err
	}
	j.part = j.target.Region.of(w, h)
	if err := j.part.check(w, h); err != nil {
		return err
	}
	j.tw, j.th = j.target.Dims(w, h)
	if want := j.target.Size(w, h); len(j.dst) != want {
		return fmt.Errorf("codec: dst has %d bytes, %dx%d %v %v needs %d", len(j.dst), j.tw, j.th, j.target.Color, j.target.Type, want)
	}
	j.rect, j.placed = j.target.place(w, h)
	return nil
}

// whole tells whether the whole picture is drawn.
func (j *job) whole() bool {
	w, h := j.info.Upright()
	return j.part == Region{Width: w, Height: h}
}

// decode recovers what a library panics with: the bytes come from strangers.
func (d *Decoder) decode(b []byte, j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec: %v: %w: decoder panicked: %v", j.info.Kind, ErrCorrupt, p)
		}
		d.src = source{} // let go of the picture's memory
		if cap(d.frame) > maxKept {
			d.frame = nil
		}
	}()
	switch j.info.Kind {
	case JPEG:
		return d.decodeJPEG(b, j)
	case PNG:
		return d.decodePNG(b, j)
	case WebP:
		return d.decodeWebP(b, j)
	}
	return unknown(b)
}

// draw renders d.src, which stands for a frame of j.info's size.
func (d *Decoder) draw(j *job) error {
	if d.src.shrunk == 0 {
		d.src.shrunk = 1
	}
	d.src.fullW, d.src.fullH = j.info.Width, j.info.Height
	w, h := j.info.Upright()
	d.src.cut(j.part.stored(j.info.Orientation, w, h))
	d.wantLuma = j.target.Color == Gray
	d.render(&d.src, j.info.Orientation, j.target, j.rect, j.tw, j.th, j.dst)
	return nil
}

// sameSize guards against a library that reads the header differently.
func sameSize(m image.Image, i Info) error {
	if b := m.Bounds(); b.Dx() != i.Width || b.Dy() != i.Height {
		return fmt.Errorf("codec: %v: %w: header says %dx%d, picture is %dx%d", i.Kind, ErrCorrupt, i.Width, i.Height, b.Dx(), b.Dy())
	}
	return nil
}
