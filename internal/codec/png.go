package codec

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zlib"
)

// PNG is decoded row by row, while the rows are resized: image/png returns whole pictures only, and takes 1.4 to 2
// times as long (BenchmarkPNG). klauspost/compress decompresses. The decoder accepts the files that image/png
// accepts, with the colours of image/png; alpha is composited on black, of 16 bits the upper 8 are used, and colour
// profiles are ignored.

// The colour types of PNG.
const (
	pngGray      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngRGBAlpha  = 6
)

// pngSamples is the number of samples of a pixel, by colour type; 0: there is none.
var pngSamples = [7]int{pngGray: 1, pngRGB: 3, pngPalette: 1, pngGrayAlpha: 2, pngRGBAlpha: 4}

// pngFormat checks the fields of an IHDR chunk after the size.
func pngFormat(ihdr []byte, info *Info) error {
	depth, kind := int(ihdr[8]), int(ihdr[9])
	ok := kind < len(pngSamples) && pngSamples[kind] > 0
	switch depth {
	case 8:
	case 16:
		ok = ok && kind != pngPalette
	case 1, 2, 4:
		ok = ok && (kind == pngGray || kind == pngPalette)
	default:
		ok = false
	}
	switch {
	case !ok:
		return fmt.Errorf("codec: png header: %w: bit depth %d with color type %d", ErrUnsupported, depth, kind)
	case ihdr[10] != 0 || ihdr[11] != 0:
		return fmt.Errorf("codec: png header: %w: compression method %d, filter method %d", ErrUnsupported, ihdr[10],
			ihdr[11])
	case ihdr[12] > 1:
		return fmt.Errorf("codec: png header: %w: interlace method %d", ErrCorrupt, ihdr[12])
	}
	info.pngDepth, info.pngColor, info.interlaced = depth, kind, ihdr[12] == 1
	return nil
}

// pngChannels is 1 where rows are gray, otherwise 3.
func (i *Info) pngChannels() int {
	if i.pngColor == pngGray || i.pngColor == pngGrayAlpha {
		return 1
	}
	return 3
}

// pngRowBytes is the length of a row of w pixels as stored, without its filter byte.
func (i *Info) pngRowBytes(w int) int { return (w*i.pngDepth*pngSamples[i.pngColor] + 7) / 8 }

// pngReader decodes the rows of a PNG to gray or RGB bytes. It implements rowReader.
type pngReader struct {
	z      io.ReadCloser // decompresses; kept between pictures
	buffer *bufio.Reader // of compressed data, read from input
	input  timedReader   // reads pngData
	data   []byte        // the rest of the current IDAT chunk
	rest   []byte        // the chunks after it
	info   Info

	width    int       // of a row: that of the picture, or of a pass
	rows     int       // rows that were read, of the picture or of a pass
	raw      [2][]byte // the last two rows as stored, each after its filter byte
	pixels   [2][]byte // the same, converted
	direct   bool      // rows as stored need no conversion
	keyed    bool      // the colour key is transparent
	key      [3]uint16
	colors   [256][3]byte // of a palette, on black
	grays    [256]byte    // of gray of 8 bits at most
	hasColor bool
	err      error
	took     time.Duration
}

var _ rowReader = (*pngReader)(nil)

// compressedBuffer is the size of the buffer of compressed data. The clock is read each time that the buffer is
// filled, so that at most 8 MiB of rows are decoded between two readings.
const compressedBuffer = 8 << 10

// pngData reads the bodies of the IDAT chunks of a pngReader.
type pngData struct{ r *pngReader }

func (d pngData) Read(b []byte) (int, error) {
	r := d.r
	for len(r.data) == 0 {
		if len(r.rest) < 8 {
			r.err = pngError(ErrTruncated, "no end of image")
			return 0, r.err
		}
		if string(r.rest[4:8]) != "IDAT" {
			return 0, io.EOF
		}
		if _, r.data, r.err = r.chunk(); r.err != nil {
			return 0, r.err
		}
	}
	n := copy(b, r.data)
	r.data = r.data[n:]
	return n, nil
}

// open begins the decompression of a picture.
func (r *pngReader) open() (err error) {
	if r.buffer == nil {
		r.buffer = bufio.NewReaderSize(nil, compressedBuffer)
		r.input.r = pngData{r}
	}
	r.data = nil
	r.buffer.Reset(&r.input)
	if r.z == nil {
		r.z, err = zlib.NewReader(r.buffer)
		return err
	}
	return r.z.(zlib.Resetter).Reset(r.buffer, nil)
}

// read fills b with decompressed bytes. io.EOF means that the compressed data were complete and too short.
func (r *pngReader) read(b []byte) error {
	for len(b) > 0 {
		n, err := r.z.Read(b)
		if b = b[n:]; err != nil && len(b) > 0 {
			return err
		}
	}
	return nil
}

// pngError is err with the kind of picture.
func pngError(kind error, format string, args ...any) error {
	return fmt.Errorf("codec: png: %w: "+format, append([]any{kind}, args...)...)
}

// chunk returns the next chunk, whose checksum is right.
func (r *pngReader) chunk() (name, body []byte, err error) {
	b := r.rest
	if len(b) < 8 {
		return nil, nil, pngError(ErrTruncated, "no end of image")
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-8) {
		return nil, nil, pngError(ErrTruncated, "a chunk of %d bytes is cut", n)
	}
	if len(b)-8-int(n) < 4 {
		return nil, nil, pngError(ErrTruncated, "a chunk of %d bytes is cut", n)
	}
	if crc32.ChecksumIEEE(b[4:8+n]) != binary.BigEndian.Uint32(b[8+n:]) {
		return nil, nil, pngError(ErrCorrupt, "wrong checksum of a chunk")
	}
	r.rest = b[12+n:]
	return b[4:8], b[8 : 8+n], nil
}

// start reads the chunks up to the pixels.
func (r *pngReader) start(b []byte, info Info) error {
	r.rest, r.info, r.rows, r.err, r.took = b[len(pngMagic):], info, 0, nil, 0
	r.keyed, r.hasColor = false, false
	keyedOrder := false // tRNS was read, after which there may be no palette
	for first := true; ; first = false {
		before := r.rest
		name, body, err := r.chunk()
		if err != nil {
			return err
		}
		switch {
		case (string(name) == "IHDR") != first:
			return pngError(ErrCorrupt, "chunk %s out of order", name)
		case string(name) == "IEND":
			return pngError(ErrCorrupt, "no pixels")
		case string(name) == "PLTE":
			if r.hasColor || keyedOrder {
				return pngError(ErrCorrupt, "chunk PLTE out of order")
			}
			if err := r.palette(body); err != nil {
				return err
			}
			r.hasColor = true
		case string(name) == "tRNS":
			if keyedOrder {
				return pngError(ErrCorrupt, "chunk tRNS out of order")
			}
			if err := r.transparency(body); err != nil {
				return err
			}
			keyedOrder = true
		case string(name) == "IDAT":
			if info.pngColor == pngPalette && !r.hasColor {
				return pngError(ErrCorrupt, "no palette")
			}
			r.rest = before
			r.prepare()
			return r.fail(r.open())
		}
	}
}

// palette reads PLTE.
func (r *pngReader) palette(b []byte) error {
	n := len(b) / 3
	switch {
	case r.info.pngChannels() == 1:
		return pngError(ErrCorrupt, "a palette in a gray picture")
	case len(b)%3 != 0 || n == 0 || n > 256 || n > 1<<r.info.pngDepth:
		return pngError(ErrCorrupt, "a palette of %d bytes", len(b))
	case r.info.pngColor != pngPalette:
		return nil // a suggestion for displays
	}
	clear(r.colors[:]) // indexes beyond the palette are black
	for i := range n {
		r.colors[i] = [3]byte(b[3*i:])
	}
	return nil
}

// transparency reads tRNS: the alpha of the palette's colours, or the colour that is
// transparent.
func (r *pngReader) transparency(b []byte) error {
	if len(b) > 256 {
		return pngError(ErrCorrupt, "transparency of %d bytes", len(b))
	}
	want := 2
	switch r.info.pngColor {
	case pngPalette:
		if !r.hasColor {
			return pngError(ErrCorrupt, "chunk tRNS out of order")
		}
		for i, a := range b {
			for c, v := range r.colors[i] {
				r.colors[i][c] = byte(uint32(v) * 0x101 * uint32(a) / 255 >> 8)
			}
		}
		return nil
	case pngRGB:
		want = 6
	case pngGray:
		if r.hasColor {
			return pngError(ErrCorrupt, "chunk tRNS out of order")
		}
	default:
		return pngError(ErrCorrupt, "a transparent colour in a picture with alpha")
	}
	if len(b) != want {
		return pngError(ErrCorrupt, "transparency of %d bytes", len(b))
	}
	for i := range want / 2 {
		r.key[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	r.keyed = true
	return nil
}

// prepare makes what converts rows.
func (r *pngReader) prepare() {
	i := &r.info
	r.direct = i.pngDepth == 8 && !r.keyed && (i.pngColor == pngGray || i.pngColor == pngRGB)
	if i.pngColor == pngGray && i.pngDepth <= 8 {
		top := 1<<i.pngDepth - 1
		for v := range top + 1 {
			r.grays[v] = byte(v * 255 / top)
		}
		if k := int(r.key[0] & 0xff); r.keyed && k <= top {
			r.grays[k] = 0
		}
	}
	r.width = i.Width
	for k := range 2 {
		r.raw[k] = grow(r.raw[k], 1+i.pngRowBytes(i.Width))
		if !r.direct {
			r.pixels[k] = grow(r.pixels[k], i.pngChannels()*i.Width)
		}
	}
	clear(r.raw[1])
}

// fail records err with what it means for the picture.
func (r *pngReader) fail(err error) error {
	switch {
	case r.err != nil || err == nil:
	case errors.Is(err, ErrSlow):
		r.err = err
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.err = pngError(ErrTruncated, "compressed data end early")
	case errors.Is(err, io.EOF):
		r.err = pngError(ErrCorrupt, "not enough pixel data")
	default:
		r.err = pngError(ErrCorrupt, "%w", err)
	}
	return r.err
}

// readRaw reads the next row as stored. The row before is used, unless it is the first.
func (r *pngReader) readRaw() bool {
	if r.err != nil {
		return false
	}
	raw := r.raw[r.rows&1]
	if err := r.read(raw); err != nil {
		_ = r.fail(err)
		return false
	}
	if raw[0] > 4 {
		r.err = pngError(ErrCorrupt, "filter %d", raw[0])
		return false
	}
	r.rows++
	return true
}

// readRow reads the next row and returns its pixels.
func (r *pngReader) readRow() []byte {
	k := r.rows & 1
	if !r.readRaw() {
		return nil
	}
	raw := r.raw[k]
	unfilter(raw[0], raw[1:], r.raw[1-k][1:], max(1, r.info.pngDepth*pngSamples[r.info.pngColor]/8))
	if r.direct {
		return raw[1:]
	}
	r.convert(r.pixels[k], raw[1:])
	return r.pixels[k]
}

// row implements rowReader.
func (r *pngReader) row(y int) []byte {
	if y >= r.rows {
		begun := time.Now()
		for y >= r.rows && r.err == nil {
			r.readRow()
		}
		r.took += time.Since(begun)
	}
	if r.direct {
		return r.raw[y&1][1:]
	}
	return r.pixels[y&1]
}

func (r *pngReader) failed() error { return r.err }

// finish reads what follows the rows that were used.
func (r *pngReader) finish() error {
	begun := time.Now()
	for r.rows < r.info.Height && r.readRaw() {
	}
	err := r.end()
	r.took += time.Since(begun)
	return err
}

// end reads what follows the last row.
func (r *pngReader) end() error {
	if r.err != nil {
		return r.err
	}
	var more [1]byte
	switch err := r.read(more[:]); {
	case err == nil:
		return pngError(ErrCorrupt, "too much pixel data")
	case !errors.Is(err, io.EOF):
		return r.fail(err)
	}
	for {
		switch name, body, err := r.chunk(); {
		case err != nil:
			return err
		case string(name) == "IEND" && len(body) == 0:
			return nil
		case string(name) == "IEND", string(name) == "IHDR", string(name) == "PLTE", string(name) == "tRNS":
			return pngError(ErrCorrupt, "chunk %s out of order", name)
		}
	}
}

// convert writes a row as stored, raw, to out: gray, or red, green and blue.
func (r *pngReader) convert(out, raw []byte) {
	i := &r.info
	switch {
	case i.pngColor == pngGray && i.pngDepth <= 8:
		r.convertGray(out[:r.width], raw)
	case i.pngColor == pngPalette:
		r.convertPalette(out[:3*r.width], raw)
	case i.pngDepth == 8:
		r.convert8(out, raw)
	default:
		r.convert16(out, raw)
	}
}

func (r *pngReader) convertGray(out, raw []byte) {
	depth := r.info.pngDepth
	if depth == 8 {
		for x, v := range raw[:len(out)] {
			out[x] = r.grays[v]
		}
		return
	}
	mask := byte(1)<<depth - 1
	for x, bit := 0, 0; x < len(out); x, bit = x+1, bit+depth {
		out[x] = r.grays[raw[bit>>3]>>(8-depth-bit&7)&mask]
	}
}

func (r *pngReader) convertPalette(out, raw []byte) {
	depth := r.info.pngDepth
	if depth == 8 {
		for _, v := range raw {
			if len(out) < 3 {
				return
			}
			c := &r.colors[v]
			out[0], out[1], out[2] = c[0], c[1], c[2]
			out = out[3:]
		}
		return
	}
	mask := byte(1)<<depth - 1
	for bit := 0; len(out) >= 3; bit += depth {
		c := &r.colors[raw[bit>>3]>>(8-depth-bit&7)&mask]
		out[0], out[1], out[2] = c[0], c[1], c[2]
		out = out[3:]
	}
}

// onBlack is v with an alpha, on black.
func onBlack(v, alpha byte) byte { return byte((uint32(v)*uint32(alpha) + 127) / 255) }

// convert8 converts a row of 8 bits with alpha or a key.
func (r *pngReader) convert8(out, raw []byte) {
	switch r.info.pngColor {
	case pngGrayAlpha:
		for x := range r.width {
			out[x] = onBlack(raw[2*x], raw[2*x+1])
		}
	case pngRGB: // with a key
		k := [3]byte{byte(r.key[0]), byte(r.key[1]), byte(r.key[2])}
		copy(out, raw)
		for x := range r.width {
			if [3]byte(raw[3*x:]) == k {
				clear(out[3*x : 3*x+3])
			}
		}
	case pngRGBAlpha:
		out := out[:3*r.width]
		for ; len(raw) >= 4 && len(out) >= 3; raw, out = raw[4:], out[3:] {
			out[0], out[1], out[2] = raw[0], raw[1], raw[2]
			if a := raw[3]; a != 255 {
				out[0], out[1], out[2] = onBlack(raw[0], a), onBlack(raw[1], a), onBlack(raw[2], a)
			}
		}
	}
}

// convert16 converts a row of 16 bits.
func (r *pngReader) convert16(out, raw []byte) {
	n := pngSamples[r.info.pngColor]
	channels := r.info.pngChannels()
	for x := range r.width {
		p := raw[2*n*x : 2*n*(x+1)]
		o := out[channels*x : channels*(x+1)]
		for c := range o {
			o[c] = p[2*c]
		}
		switch {
		case n > channels:
			for c := range o {
				o[c] = onBlack(o[c], p[2*channels])
			}
		case r.keyed:
			same := true
			for c := range o {
				same = same && binary.BigEndian.Uint16(p[2*c:]) == r.key[c]
			}
			if same {
				clear(o)
			}
		}
	}
}

// adam7 are the passes of an interlaced picture: their first column and row, and the
// distances between columns and rows.
var adam7 = [7]struct{ x, y, dx, dy int }{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4},
	{1, 0, 2, 2}, {0, 1, 1, 2}}

// readInterlaced reads all pixels of an interlaced picture into frame.
func (r *pngReader) readInterlaced(frame []byte) error {
	w, h, n := r.info.Width, r.info.Height, r.info.pngChannels()
	whole := r.raw
	for _, p := range adam7 {
		r.width = (w - p.x + p.dx - 1) / p.dx
		height := (h - p.y + p.dy - 1) / p.dy
		if r.width <= 0 || height <= 0 {
			continue
		}
		for k := range 2 {
			r.raw[k] = whole[k][:1+r.info.pngRowBytes(r.width)]
		}
		clear(r.raw[1])
		r.rows = 0
		for y := range height {
			row := r.readRow()
			if row == nil {
				r.raw = whole
				return r.err
			}
			to := frame[((p.y+y*p.dy)*w+p.x)*n:]
			if n == 1 {
				for x := range r.width {
					to[x*p.dx] = row[x]
				}
				continue
			}
			for x := range r.width {
				copy(to[3*x*p.dx:3*x*p.dx+3], row[3*x:3*x+3])
			}
		}
	}
	r.raw = whole
	return r.end()
}

func (d *Decoder) decodePNG(b []byte, j *job) error {
	if d.png == nil {
		d.png = new(pngReader)
	}
	r := d.png
	r.input.d = d
	defer func() { r.rest, r.data, r.input.d = nil, nil, nil }()
	if err := r.start(b, j.info); err != nil {
		return err
	}
	n := j.info.pngChannels()
	m := modelRGB
	if n == 1 {
		m = modelGray
	}
	w, h := j.info.Width, j.info.Height
	d.src = source{}
	if j.info.interlaced {
		d.frame = grow(d.frame, n*w*h)
		if err := r.readInterlaced(d.frame); err != nil {
			return err
		}
		d.src.setPacked(m, d.frame, n*w, n, 1, w, h)
		return d.draw(j)
	}
	d.src.setRows(m, r, n, w, h)
	err := d.draw(j)
	d.Drawn -= r.took
	if err != nil {
		return err
	}
	return r.finish()
}
