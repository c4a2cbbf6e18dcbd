package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"sync"
	"time"
)

// decodeStdJPEG decodes a JPEG with image/jpeg. Unlike libjpeg-turbo, image/jpeg refuses progressive pictures with
// both restart markers and subsampled chroma; such pictures are rare.
func (d *Decoder) decodeStdJPEG(b []byte, j *job) error {
	quantised, huffman := jpegTables(b)
	if !quantised {
		// image/jpeg would use factors of 0 and return a gray picture.
		return fmt.Errorf("codec: jpeg: %w: a quantisation table is missing", ErrCorrupt)
	}
	d.reader.Reset(b)
	var r io.Reader = &timedReader{&d.reader, d}
	if !huffman {
		d.reader.Reset(b[2:])
		r = io.MultiReader(bytes.NewReader(b[:2]), bytes.NewReader(standardTables()), r)
	}
	m, err := jpeg.Decode(r)
	d.reader.Reset(nil)
	if err != nil {
		return pictureError(JPEG, err)
	}
	return d.drawImage(m, j)
}

// timedReader ends decoding at the deadline, between two reads.
type timedReader struct {
	r io.Reader
	d *Decoder
}

func (t *timedReader) Read(b []byte) (int, error) {
	if until := t.d.deadline; !until.IsZero() && time.Now().After(until) {
		return 0, ErrSlow
	}
	return t.r.Read(b)
}

// jpegTables reports whether every quantisation table of the frame header precedes
// the first scan, and whether any Huffman table does.
func jpegTables(b []byte) (quantised, huffman bool) {
	have, need := 0, 0
	for i := 2; i+4 <= len(b); {
		if b[i] != 0xff || b[i+1] == 0xff { // garbage, fill bytes
			i++
			continue
		}
		m := b[i+1]
		if m == 0 || m == 0x01 || (m >= 0xd0 && m <= 0xd8) {
			i += 2
			continue
		}
		n := 2 + int(binary.BigEndian.Uint16(b[i+2:]))
		if m == 0xda || n < 4 || i+n > len(b) {
			break
		}
		seg := b[i+4 : i+n]
		i += n
		switch {
		case m == 0xc4:
			huffman = true
		case m == 0xdb:
			for len(seg) > 0 {
				have |= 1 << (seg[0] & 15)
				size := 65
				if seg[0]>>4 != 0 {
					size = 129
				}
				seg = seg[min(size, len(seg)):]
			}
		case m >= 0xc0 && m <= 0xc2 && len(seg) >= 6:
			for c := 6; c+2 < len(seg); c += 3 {
				need |= 1 << (seg[c+2] & 15)
			}
		}
	}
	return have&need == need, huffman
}

// standardTables is a segment with the Huffman tables of the JPEG standard's annex K, the tables of pictures without
// their own. image/jpeg writes the same tables.
var standardTables = sync.OnceValue(func() []byte {
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, image.NewYCbCr(image.Rect(0, 0, 8, 8), image.YCbCrSubsampleRatio420), nil); err != nil {
		return nil // the decoder then reports the missing tables
	}
	var out []byte
	b := buf.Bytes()
	for i := 2; i+4 <= len(b) && b[i+1] != 0xda; {
		n := 2 + int(binary.BigEndian.Uint16(b[i+2:]))
		if b[i+1] == 0xc4 {
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return out
})
