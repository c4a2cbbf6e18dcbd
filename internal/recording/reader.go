package recording

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Reader reads a recording, sequentially or by a frame's seq. A Reader uses 32 bytes of memory for each frame and
// ending. All methods but Next and Close may be called concurrently.
type Reader struct {
	src    io.ReaderAt
	close  func() error
	header Header
	first  int64 // offset of the first record after the header
	pos    int64 // of Next
	end    int64 // offset of the end of the last complete record
	cut    error

	frames  []entry // by seq
	endings []entry // by seq; endings of the same frame in order
}

// Item is a frame or an ending: one of the two is set.
type Item struct {
	Frame  *Frame
	Ending *Ending
}

// Open opens a file.
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	var r *Reader
	if err == nil {
		r, err = NewReader(f, st.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads a recording of size bytes. If src is not a recording, NewReader fails. A truncated file is read as
// far as possible, see Cut.
func NewReader(src io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{src: src, close: func() error { return nil }, end: size}
	var pre [preamble]byte
	if size < preamble {
		return nil, errors.New("is not a recording: it is too short")
	}
	if err := readAt(src, pre[:], 0); err != nil {
		return nil, err
	}
	if string(pre[:8]) != signature {
		return nil, errors.New("is not a recording: it does not begin with its signature")
	}
	if v := binary.LittleEndian.Uint32(pre[8:]); v != version {
		return nil, fmt.Errorf("it has version %d, and this program reads version %d", v, version)
	}
	rec, next, _, err := readRecord(src, preamble, size, nil)
	if err == nil && rec.kind != kindHeader {
		err = errors.New("the first record is not a header")
	}
	if err == nil {
		err = json.Unmarshal(rec.json, &r.header)
	}
	if err != nil {
		return nil, fmt.Errorf("its header cannot be read: %w", err)
	}
	r.first, r.pos = next, next
	if !r.load(size) {
		if err := r.scan(size); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(r.endings, bySeq)
	return r, nil
}

func bySeq(a, b entry) int { return cmp.Compare(a.seq, b.seq) }

// load reads the index, and reports whether the index is complete.
func (r *Reader) load(size int64) bool {
	end := size - endLen
	if end < r.first {
		return false
	}
	rec, next, _, err := readRecord(r.src, end, size, nil)
	if err != nil || rec.kind != kindEnd || len(rec.data) != 8 || next != size {
		return false
	}
	// From the last index to the first. Each index must precede the following index, so that the loop ends.
	var parts [][]entry
	limit := end
	for at := int64(binary.LittleEndian.Uint64(rec.data)); at != 0; {
		if at < r.first || at >= limit {
			return false
		}
		idx, _, _, err := readRecord(r.src, at, limit, nil)
		if err != nil || idx.kind != kindIndex || len(idx.data) < 8 || len(idx.data)%entryLen != 8 {
			return false
		}
		parts = append(parts, r.entries(idx.data[8:]))
		limit, at = at, int64(binary.LittleEndian.Uint64(idx.data))
	}
	slices.Reverse(parts)
	for _, p := range parts {
		for _, e := range p {
			if !r.add(e) {
				r.frames, r.endings = nil, nil
				return false
			}
		}
	}
	r.end = end
	return true
}

func (r *Reader) entries(data []byte) []entry {
	le := binary.LittleEndian
	list := make([]entry, 0, len(data)/entryLen)
	for ; len(data) >= entryLen; data = data[entryLen:] {
		list = append(list, entry{kind: kind(le.Uint64(data)), seq: le.Uint64(data[8:]),
			offset: int64(le.Uint64(data[16:])), at: int64(le.Uint64(data[24:]))})
	}
	return list
}

// add adds an entry. The result is false for an invalid entry: frames must ascend.
func (r *Reader) add(e entry) bool {
	switch e.kind {
	case kindFrame:
		if n := len(r.frames); n > 0 && r.frames[n-1].seq >= e.seq {
			return false
		}
		r.frames = append(r.frames, e)
	case kindEnding:
		r.endings = append(r.endings, e)
	}
	return true
}

// scan builds the index of a file without an index, up to its last complete record.
func (r *Reader) scan(size int64) error {
	var buf []byte
	for at := r.first; at < size; {
		rec, next, mem, err := readRecord(r.src, at, size, buf)
		var path *os.PathError
		if errors.As(err, &path) {
			return err // an error of the disk, not of the file's content
		}
		if err == nil && !r.add(entry{kind: rec.kind, seq: rec.seq, offset: at, at: rec.at}) {
			err = errors.New("its frames are not in order")
		}
		if err != nil {
			r.end, r.cut = at, fmt.Errorf("recording: readable up to byte %d of %d: %w", at, size, err)
			return nil
		}
		buf = mem
		if rec.kind == kindEnd { // the rest is ignored
			r.end = at
			if next < size {
				r.cut = fmt.Errorf("recording: %d bytes after its end", size-next)
			}
			return nil
		}
		at = next
	}
	r.end, r.cut = size, errors.New("recording: it has no end: it was truncated between two records, or is being "+
		"written")
	return nil
}

// Header describes the recording.
func (r *Reader) Header() Header { return r.header }

// Cut returns why the end of the file is missing, nil for a complete file.
func (r *Reader) Cut() error { return r.cut }

// Frames returns the number of frames.
func (r *Reader) Frames() int { return len(r.frames) }

// Seq returns the seq of a frame by its index, from 0 to Frames()-1.
func (r *Reader) Seq(i int) uint64 { return r.frames[i].seq }

// Next returns the frames and endings in the order of writing, and io.EOF after the last complete record.
func (r *Reader) Next() (Item, error) {
	for {
		if r.pos >= r.end {
			return Item{}, io.EOF
		}
		at := r.pos
		rec, next, _, err := readRecord(r.src, at, r.end, nil)
		if err != nil {
			return Item{}, damaged(at, err)
		}
		r.pos = next
		switch rec.kind {
		case kindFrame:
			f, err := rec.frame()
			return Item{Frame: f}, err
		case kindEnding:
			e, err := rec.ending()
			return Item{Ending: e}, err
		}
	}
}

func damaged(at int64, err error) error {
	return fmt.Errorf("recording: damaged at byte %d: %w", at, err)
}

// Has reports whether there is a frame with this seq.
func (r *Reader) Has(seq uint64) bool {
	_, ok := slices.BinarySearchFunc(r.frames, seq, ofSeq)
	return ok
}

func ofSeq(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) }

// Frame reads the frame with this seq, nil if there is none.
func (r *Reader) Frame(seq uint64) (*Frame, error) {
	i, ok := slices.BinarySearchFunc(r.frames, seq, ofSeq)
	if !ok {
		return nil, nil
	}
	rec, err := r.read(r.frames[i])
	if err != nil {
		return nil, err
	}
	return rec.frame()
}

// Endings reads the endings of a frame in order. A frame whose ending did not arrive has none.
func (r *Reader) Endings(seq uint64) ([]*Ending, error) {
	i, _ := slices.BinarySearchFunc(r.endings, seq, ofSeq)
	var list []*Ending
	for ; i < len(r.endings) && r.endings[i].seq == seq; i++ {
		rec, err := r.read(r.endings[i])
		if err != nil {
			return nil, err
		}
		e, err := rec.ending()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// read reads the record of an entry of the index.
func (r *Reader) read(e entry) (record, error) {
	if e.offset < r.first || e.offset >= r.end {
		return record{}, damaged(r.end, fmt.Errorf("the index has frame %d after the end of the file", e.seq))
	}
	rec, _, _, err := readRecord(r.src, e.offset, r.end, nil)
	if err == nil && (rec.kind != e.kind || rec.seq != e.seq) {
		err = fmt.Errorf("the index has frame %d here", e.seq)
	}
	if err != nil {
		return record{}, damaged(e.offset, err)
	}
	return rec, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.close() }
