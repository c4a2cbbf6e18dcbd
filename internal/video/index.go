package video

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// IndexMemory is how much memory Index needs at most for each picture, in bytes.
const IndexMemory = 100

// indexChunk is the number of pictures of a chunk, whose place in the file is in the index.
const indexChunk = 16

// Index writes a fragmented MP4 of ReadMP4, the first size bytes of from, as an MP4 with an index: the tables of all
// pictures are in front of the pictures (ISO/IEC 14496-12, 8.6 and 8.7), which have the same bytes and times.
func Index(to io.Writer, from io.ReaderAt, size int64) error {
	open := func() *bufio.Reader { return bufio.NewReaderSize(io.NewSectionReader(from, 0, size), 64<<10) }
	var x index
	if err := x.scan(open()); err != nil {
		return err
	}
	head, err := x.head()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 256<<10)
	_, _ = w.Write(head) // Flush returns the error
	r := open()
	for {
		name, size, err := peekBox(r)
		switch {
		case err == io.EOF:
			return w.Flush()
		case err != nil:
			return err
		case name != "mdat":
			_, err = r.Discard(size)
		default:
			_, err = r.Discard(8)
			for left := size - 8; left > 0 && err == nil; {
				part, bad := r.Peek(min(left, r.Size())) // io.CopyN would allocate memory for each picture
				n, _ := w.Write(part)
				left -= n
				if _, err = r.Discard(n); n == 0 {
					err = unexpectedEOF(bad)
				}
			}
		}
		if err != nil {
			return unexpectedEOF(err)
		}
	}
}

// Fragmented reports whether an MP4 has fragments behind the box moov.
func Fragmented(from io.ReaderAt) bool {
	var head [8]byte
	for at := int64(0); ; {
		if _, err := from.ReadAt(head[:], at); err != nil {
			return false
		}
		switch string(head[4:]) {
		case "moof":
			return true
		case "ftyp", "moov":
			at += max(8, int64(binary.BigEndian.Uint32(head[:])))
		default:
			return false
		}
	}
}

// index has the tables of pictures.
type index struct {
	header           MP4Header
	ftyp, moov       []byte
	pictures         uint32
	bytes            uint64 // of the pictures
	ticks, length    int64  // of the newest picture
	end              int64  // of the presentation, in ticks
	scale            uint32 // of the box mvhd
	stts, ctts       runs
	stss, stsz, co64 boxWriter // entries; places in co64 count from the first picture
	shifted          bool      // a picture is not shown at its decode time
}

// runs is a table of repeated values.
type runs struct{ boxWriter }

func (t *runs) add(v uint32) {
	if n := len(t.b); n > 0 && binary.BigEndian.Uint32(t.b[n-4:]) == v {
		binary.BigEndian.PutUint32(t.b[n-8:], binary.BigEndian.Uint32(t.b[n-8:])+1)
		return
	}
	t.u32(1, v)
}

// scan fills the tables.
func (x *index) scan(r *bufio.Reader) error {
	var data []byte
	waiting := false // for the bytes of a picture
	for {
		name, size, err := peekBox(r)
		if err == io.EOF && !waiting && x.pictures > 0 {
			return x.took(x.length)
		}
		if err != nil {
			return unexpectedEOF(err)
		}
		if waiting != (name == "mdat") {
			return fmt.Errorf("%w: a box %q", errMP4, name)
		}
		if waiting {
			waiting = false
			x.stsz.u32(uint32(size - 8))
			x.bytes += uint64(size - 8)
			if _, err := r.Discard(size); err != nil {
				return unexpectedEOF(err)
			}
			continue
		}
		if _, err := readBox(r, &data, 0); err != nil {
			return err
		}
		switch name {
		case "ftyp":
			x.ftyp = append(x.ftyp[:0], data...)
		case "moov":
			if err := x.header.parse(data); err != nil {
				return err
			}
			x.moov = append(x.moov[:0], data...)
		case "moof":
			if err := x.picture(data); err != nil {
				return err
			}
			waiting = true
		}
	}
}

// took adds the time from the newest picture to the next.
func (x *index) took(ticks int64) error {
	if ticks < 0 || ticks > math.MaxUint32 {
		return fmt.Errorf("%w: a step of %d ticks", errMP4, ticks)
	}
	x.stts.add(uint32(ticks))
	return nil
}

// picture adds the picture of a fragment.
func (x *index) picture(moof []byte) error {
	var p Fragment
	pts, length, err := p.parse(moof)
	if err != nil {
		return err
	}
	if x.pictures > 0 {
		if err := x.took(p.Ticks - x.ticks); err != nil {
			return err
		}
	}
	if x.pictures%indexChunk == 0 {
		x.co64.u64(x.bytes)
	}
	x.pictures++
	if p.Key {
		x.stss.u32(x.pictures)
	}
	shift := pts - p.Ticks
	x.ctts.add(uint32(int32(shift)))
	x.shifted = x.shifted || shift != 0
	x.ticks, x.length, x.end = p.Ticks, length, max(x.end, pts+length)
	return nil
}

// head returns the file up to the first picture.
func (x *index) head() ([]byte, error) {
	if x.header.scale == 0 {
		return nil, errMP4
	}
	w := boxWriter{x.ftyp}
	var err error
	places := 0 // of the table co64
	w.box("moov", func() { err = x.copy(&w, x.moov[8:], &places) })
	if err == nil && places == 0 {
		err = errMP4
	}
	if err != nil {
		return nil, err
	}
	w.u32(1) // the size has 64 bits
	w.text("mdat")
	w.u64(16 + x.bytes)
	for i := places; i < places+len(x.co64.b); i += 8 {
		binary.BigEndian.PutUint64(w.b[i:], binary.BigEndian.Uint64(w.b[i:])+uint64(len(w.b)))
	}
	return w.b, nil
}

// copy copies boxes of moov with the tables and the length of the video, and without what announces fragments.
func (x *index) copy(w *boxWriter, b []byte, places *int) error {
	return boxes(b, func(name string, _ int, c []byte) (err error) {
		switch name {
		case "mvex":
		case "trak", "mdia", "minf":
			w.box(name, func() { err = x.copy(w, c, places) })
		case "mvhd", "mdhd", "tkhd":
			err = x.times(w, name, c)
		case "stbl":
			if *places != 0 {
				return fmt.Errorf("%w: more than one track", errMP4)
			}
			w.box(name, func() { err = x.tables(w, c, places) })
		default:
			w.box(name, func() { w.b = append(w.b, c...) })
		}
		return err
	})
}

// times writes a box with the length of the video. Version 1 of the box has 64 bits for the length.
func (x *index) times(w *boxWriter, name string, c []byte) error {
	size, between := 4, 4 // bytes of a time, and between the times and the length
	if len(c) > 0 && c[0] == 1 {
		size = 8
	}
	if name == "tkhd" {
		between = 8
	}
	at := 4 + 2*size
	if len(c) < at+between+size {
		return errMP4
	}
	switch name {
	case "mvhd":
		x.scale = binary.BigEndian.Uint32(c[at:])
	case "mdhd":
		x.header.scale = binary.BigEndian.Uint32(c[at:])
	}
	length := uint64(x.end)
	if name != "mdhd" {
		length = uint64(math.Ceil(float64(x.end) * float64(x.scale) / float64(x.header.scale)))
	}
	w.full(name, 1, binary.BigEndian.Uint32(c)&0xffffff, func() {
		for _, t := range [][]byte{c[4 : 4+size], c[4+size : at]} {
			w.b = append(append(w.b, make([]byte, 8-size)...), t...)
		}
		w.b = append(w.b, c[at:at+between]...)
		w.u64(length)
		w.b = append(w.b, c[at+between+size:]...)
	})
	return nil
}

// tables writes the tables in place of empty ones, behind the box with the codec's parameters.
func (x *index) tables(w *boxWriter, c []byte, places *int) error {
	table := func(name string, version byte, n int, entries []byte) {
		w.full(name, version, 0, func() {
			w.u32(uint32(n))
			w.b = append(w.b, entries...)
		})
	}
	err := boxes(c, func(name string, _ int, c []byte) error {
		if name == "stsd" {
			w.box(name, func() { w.b = append(w.b, c...) })
		}
		return nil
	})
	table("stts", 0, len(x.stts.b)/8, x.stts.b)
	if x.shifted {
		table("ctts", 1, len(x.ctts.b)/8, x.ctts.b)
	}
	table("stss", 0, len(x.stss.b)/4, x.stss.b)
	var chunks boxWriter // first chunk, pictures, description
	full, rest := x.pictures/indexChunk, x.pictures%indexChunk
	if full > 0 {
		chunks.u32(1, indexChunk, 1)
	}
	if rest > 0 {
		chunks.u32(full+1, rest, 1)
	}
	table("stsc", 0, len(chunks.b)/12, chunks.b)
	w.full("stsz", 0, 0, func() {
		w.u32(0, x.pictures)
		w.b = append(w.b, x.stsz.b...)
	})
	table("co64", 0, len(x.co64.b)/8, x.co64.b)
	*places = len(w.b) - len(x.co64.b)
	return err
}
