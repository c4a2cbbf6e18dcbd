package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"time"
)

// maxScratch bounds the scratch memory that a Decoder keeps between pictures and that no Memory counts: the excess,
// needed for a large picture, is freed. A picture of 1920x1080 takes 6 MB.
const maxScratch = 8 << 20

// maxKeptWidth is the largest picture width for which rows are kept.
const maxKeptWidth = 1 << 16

// Decoder decodes pictures into targets. A Decoder keeps scratch memory and interpolation tables, so use one Decoder
// per goroutine. Calling Close is optional: the garbage collector frees all memory. The zero Decoder is ready, with
// the default limits.
//
// After the first picture of a size, Decode of a PNG, of a JPEG (with the turbojpeg build) and Convert allocate
// nothing. x/image/webp and image/jpeg allocate the decoded picture; libjpeg-turbo and libwebp allocate memory not
// counted by Go.
type Decoder struct {
	Limits Limits
	Memory Memory // counts the memory of decoding; nil: no count
	// Drawn is the time for resizing, converting and normalising in the last call of Decode, DecodeInfo or Convert,
	// including decoding; 0 when the call failed earlier, or only copied.
	Drawn time.Duration

	frame    []byte
	axes     [maxAxes]axis
	axisUses uint64
	samplers [5]sampler
	lines    [4][]byte
	blank    []byte
	lut      *[3][256]uint32
	lutFor   Norm
	lutHalf  bool
	wantLuma bool
	src      source
	reader   bytes.Reader
	png      *pngReader
	deadline time.Time // of the current picture
}

// Memory counts the memory for decoding. Charge is called before an allocation, and its error ends decoding; Refund
// returns the same number of bytes.
type Memory interface {
	Charge(bytes int64) error
	Refund(bytes int64)
}

// NewDecoder makes a Decoder with limits.
func NewDecoder(l Limits) *Decoder { return &Decoder{Limits: l} }

// Close frees the scratch memory. Close may be called twice, and the Decoder may be used again afterwards.
func (d *Decoder) Close() { *d = Decoder{Limits: d.Limits, Memory: d.Memory} }

// Decode decodes the picture b into dst; len(dst) must be t.Size of the upright picture (Header returns the picture's
// size). After an error dst may be partly written. Errors wrap ErrUnknown, ErrTruncated, ErrCorrupt, ErrUnsupported
// or ErrTooLarge for a bad picture, ErrSlow, ErrRegion when t.Region is not within the picture, or the error of
// Memory. Decoding a region of a JPEG decodes the whole picture, at the scale needed for the region.
func (d *Decoder) Decode(b []byte, t Target, dst []byte) (Placed, error) {
	d.Drawn = 0
	info, err := d.Limits.Header(b)
	if err != nil {
		return Placed{}, err
	}
	return d.DecodeInfo(b, info, t, dst)
}

// DecodeInfo is Decode after the caller has read the header. info must be Header's result for the same bytes and this
// Decoder's limits.
func (d *Decoder) DecodeInfo(b []byte, info Info, t Target, dst []byte) (Placed, error) {
	d.Drawn = 0
	w, h := info.Upright()
	j := job{info: info, target: &t, dst: dst}
	if err := j.place(w, h); err != nil {
		return Placed{}, err
	}
	if err := d.Limits.checkDecoded(&j); err != nil {
		return Placed{}, err
	}
	if d.Memory != nil {
		n := int64(j.memory())
		if err := d.Memory.Charge(n); err != nil {
			return Placed{}, fmt.Errorf("codec: memory of decoding: %w", err)
		}
		defer d.Memory.Refund(n)
	}
	d.deadline = time.Time{}
	if d.Limits.MaxTime > 0 {
		d.deadline = time.Now().Add(d.Limits.MaxTime)
	}
	if err := d.decode(b, &j); err != nil {
		if errors.Is(err, ErrSlow) {
			return Placed{}, fmt.Errorf("codec: %v: %w, over limits.max_decode_time=%v: raise it, or send the "+
				"picture smaller", info.Kind, ErrSlow, d.Limits.MaxTime)
		}
		return Placed{}, err
	}
	return j.placed, nil
}

// job is the decoding of one picture into its target.
type job struct {
	info   Info
	target *Target
	dst    []byte
	part   Region // of the upright picture; never the zero Region
	rect   rect
	tw, th int
	placed Placed
}

func (j *job) place(w, h int) error {
	if err := j.target.Validate(); err != nil {
		return err
	}
	j.part = j.target.Region.orFullPicture(w, h)
	if err := j.part.check(w, h); err != nil {
		return err
	}
	j.tw, j.th = j.target.Dims(w, h)
	if want := j.target.Size(w, h); len(j.dst) != want {
		return fmt.Errorf("codec: dst has %d bytes, %dx%d %v %v needs %d", len(j.dst), j.tw, j.th, j.target.Color,
			j.target.Type, want)
	}
	j.rect, j.placed = j.target.place(w, h)
	return nil
}

// whole reports whether the whole picture is drawn.
func (j *job) whole() bool {
	w, h := j.info.Upright()
	return j.part == Region{Width: w, Height: h}
}

// decode recovers panics of the libraries, because the bytes are untrusted.
func (d *Decoder) decode(b []byte, j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec: %v: %w: decoder panicked: %v", j.info.Kind, ErrCorrupt, p)
		}
		d.src = source{} // releases the picture's memory
		if cap(d.frame) > maxScratch {
			d.frame = nil
		}
		if j.info.Width > maxKeptWidth {
			d.png, d.samplers = nil, [5]sampler{}
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
	return unknownError(b)
}

// draw renders d.src, the decoded and perhaps shrunk picture of j.info.
func (d *Decoder) draw(j *job) error {
	if d.src.shrunk == 0 {
		d.src.shrunk = 1
	}
	d.src.fullW, d.src.fullH = j.info.Width, j.info.Height
	w, h := j.info.Upright()
	d.src.crop(j.part.stored(j.info.Orientation, w, h))
	d.wantLuma = j.target.Color == Gray
	begun := time.Now()
	err := d.render(&d.src, j.info.Orientation, j.target, j.rect, j.tw, j.th, j.dst)
	d.Drawn = time.Since(begun)
	return err
}

// sameSize checks that the library read the same size from the header.
func sameSize(m image.Image, i Info) error {
	if b := m.Bounds(); b.Dx() != i.Width || b.Dy() != i.Height {
		return fmt.Errorf("codec: %v: %w: header says %dx%d, picture is %dx%d", i.Kind, ErrCorrupt, i.Width, i.Height,
			b.Dx(), b.Dy())
	}
	return nil
}
