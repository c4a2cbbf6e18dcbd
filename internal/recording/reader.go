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

// Reader reads a recording, one record after the other or by a frame's seq. It
// holds 32 bytes of memory for each frame and ending. Frame, Endings and the
// other methods may be called concurrently, but for Next and Close.
type Reader struct {
	src    io.ReaderAt
	close  func() error
	header Header
	first  int64 // offset of the first record after the header
	pos    int64 // of Next
	end    int64 // records are before it
	cut    error

	frames  []entry // by seq
	endings []entry // by seq, and those of one frame in their order
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
		return nil, fmt.Errorf("recording: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	var r *Reader
	if err == nil {
		r, err = NewReader(f, st.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("recording: %s: %w", name, err)
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads a recording of size bytes. It fails for what is none; a file
// that was cut short is read as far as it goes, see Cut.
func NewReader(src io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{src: src, close: func() error { return nil }, end: size}
	var pre [preamble]byte
	if size < preamble {
		return nil, errors.New("it is no recording: it is too short")
	}
	if err := readAt(src, pre[:], 0); err != nil {
		return nil, err
	}
	if string(pre[:8]) != signature {
		return nil, errors.New("it is no recording: it does not begin like one")
	}
	if v := binary.LittleEndian.Uint32(pre[8:]); v != version {
		return nil, fmt.Errorf("it is of version %d, this program reads %d", v, version)
	}
	rec, next, _, err := readRecord(src, preamble, size, nil)
	if err == nil && rec.kind != kindHeader {
		err = errors.New("the first record is no header")
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

// load reads the index, and says whether there is a whole one.
func (r *Reader) load(size int64) bool {
	end := size - endLen
	if end < r.first {
		return false
	}
	rec, next, _, err := readRecord(r.src, end, size, nil)
	if err != nil || rec.kind != kindEnd || len(rec.data) != 8 || next != size {
		return false
	}
	// From the last index to the first; each must lie before the one after it, so that this ends.
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
			if !r.note(e) {
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
		list = append(list, entry{kind: kind(le.Uint64(data)), seq: le.Uint64(data[8:]), offset: int64(le.Uint64(data[16:])), at: int64(le.Uint64(data[24:]))})
	}
	return list
}

// note takes an entry, and says whether it can be one: frames ascend.
func (r *Reader) note(e entry) bool {
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

// scan makes the index of a file that has none, up to its last whole record.
func (r *Reader) scan(size int64) error {
	var buf []byte
	for at := r.first; at < size; {
		rec, next, mem, err := readRecord(r.src, at, size, buf)
		var path *os.PathError
		if errors.As(err, &path) {
			return err // the disk's fault, not the file's
		}
		if err == nil && !r.note(entry{kind: rec.kind, seq: rec.seq, offset: at, at: rec.at}) {
			err = errors.New("its frames are not in order")
		}
		if err != nil {
			r.end, r.cut = at, fmt.Errorf("recording: readable up to byte %d of %d: %w", at, size, err)
			return nil
		}
		buf = mem
		if rec.kind == kindEnd { // behind it nothing counts
			r.end = at
			if next < size {
				r.cut = fmt.Errorf("recording: %d bytes after its end", size-next)
			}
			return nil
		}
		at = next
	}
	r.end, r.cut = size, errors.New("recording: it has no end: it was cut short between two records, or is being written")
	return nil
}

// Header says what was recorded.
func (r *Reader) Header() Header { return r.header }

// Cut says what is missing at the end of the file, nil for a whole one.
func (r *Reader) Cut() error { return r.cut }

// Frames is the number of frames.
func (r *Reader) Frames() int { return len(r.frames) }

// Seq is the seq of a frame by its place: from 0, less than Frames.
func (r *Reader) Seq(i int) uint64 { return r.frames[i].seq }

// Next returns the frames and endings in the order in which they were written,
// and io.EOF after the last whole one.
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

// Has says whether there is a frame of that seq.
func (r *Reader) Has(seq uint64) bool {
	_, ok := slices.BinarySearchFunc(r.frames, seq, ofSeq)
	return ok
}

func ofSeq(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) }

// Frame reads a frame; nil when there is none of that seq.
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

// Endings reads the endings of a frame in their order: none for one whose ending
// was not seen.
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

// read reads the record that the index says is there.
func (r *Reader) read(e entry) (record, error) {
	if e.offset < r.first || e.offset >= r.end {
		return record{}, damaged(r.end, fmt.Errorf("the index has frame %d outside the file", e.seq))
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
