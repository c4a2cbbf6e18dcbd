package recording

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// indexEvery is the number of entries of an index, and so bounds the memory of a Writer.
const indexEvery = 1024

const bufferSize = 256 << 10

// Writer writes a recording. A Writer is safe for concurrent use. After an error of the file, all later calls, also
// Close, return the same error.
type Writer struct {
	mu      sync.Mutex
	out     *bufio.Writer
	close   func() error
	pos     int64 // of the next record
	index   []entry
	chained int64 // offset of the previous index, 0 = none
	frames  uint64
	last    uint64 // seq of the last frame
	head    []byte // memory
	closed  bool
	err     error
}

// Create creates the file, which must not exist: a recording is never overwritten.
func Create(name string, h Header) (*Writer, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil, fmt.Errorf("%s exists: remove it, or choose another name", name)
	case err != nil:
		return nil, err
	}
	w, err := NewWriter(f, h)
	if err != nil {
		_ = f.Close()
		_ = os.Remove(name)
		return nil, err
	}
	w.close = f.Close
	return w, nil
}

// NewWriter starts a recording.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	w := &Writer{out: bufio.NewWriterSize(to, bufferSize), close: func() error { return nil }}
	pre := append([]byte(signature), make([]byte, 8)...)
	binary.LittleEndian.PutUint32(pre[8:], version)
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("recording: header: %w", err)
	}
	if _, err = w.out.Write(pre); err == nil {
		w.pos = preamble
		err = w.put(&record{kind: kindHeader, json: text}, nil)
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	return w, nil
}

// Frame appends a frame without keeping its memory. Its Seq must be larger than the previous frame's.
func (w *Writer) Frame(f *Frame) error {
	r, parts, err := f.encode()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frames > 0 && f.Seq <= w.last {
		return fmt.Errorf("recording: frame %d comes after frame %d", f.Seq, w.last)
	}
	if err := w.add(r, parts); err != nil {
		return err
	}
	w.frames++
	w.last = f.Seq
	return nil
}

// Ending appends an ending. The sizes of a result's outputs must match their shapes.
func (w *Writer) Ending(e *Ending) error {
	r, parts, err := e.encode()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(r, parts)
}

// add appends a record listed by the index.
func (w *Writer) add(r *record, parts [][]byte) error {
	if w.closed {
		return errors.New("recording: the writer is closed")
	}
	at := entry{kind: r.kind, seq: r.seq, offset: w.pos, at: r.at}
	if err := w.put(r, parts); err != nil {
		return err
	}
	w.index = append(w.index, at)
	if len(w.index) < indexEvery {
		return nil
	}
	return w.putIndex()
}

// putIndex writes the entries since the last index.
func (w *Writer) putIndex() error {
	if len(w.index) == 0 {
		return nil
	}
	le := binary.LittleEndian
	data := le.AppendUint64(make([]byte, 0, 8+entryLen*len(w.index)), uint64(w.chained))
	for _, e := range w.index {
		data = le.AppendUint64(data, uint64(e.kind))
		data = le.AppendUint64(data, e.seq)
		data = le.AppendUint64(data, uint64(e.offset))
		data = le.AppendUint64(data, uint64(e.at))
	}
	here := w.pos
	if err := w.put(&record{kind: kindIndex, seq: uint64(len(w.index))}, [][]byte{data}); err != nil {
		return err
	}
	w.chained, w.index = here, w.index[:0]
	return nil
}

// put appends a record. Too long a record does not change the file.
func (w *Writer) put(r *record, parts [][]byte) (err error) {
	if w.err != nil {
		return w.err
	}
	if w.head, err = appendHead(w.head[:0], r, parts); err != nil {
		return err
	}
	n := len(w.head)
	_, err = w.out.Write(w.head)
	for _, p := range parts {
		if err == nil {
			_, err = w.out.Write(p)
		}
		n += len(p)
	}
	if err != nil {
		w.err = fmt.Errorf("recording: %w", err)
		return w.err
	}
	w.pos += int64(n)
	return nil
}

// Flush writes buffered records to the file. When the program is killed, only later records
// are lost.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Flush(); err != nil && w.err == nil {
		w.err = fmt.Errorf("recording: %w", err)
	}
	return w.err
}

// Size returns the present length of the file, in bytes.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pos
}

// Frames returns the number of frames.
func (w *Writer) Frames() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames
}

// Close writes the index and the end, and closes the file. A second call returns the same
// error.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	err := w.putIndex()
	if err == nil {
		err = w.put(&record{kind: kindEnd, seq: w.frames},
			[][]byte{binary.LittleEndian.AppendUint64(nil, uint64(w.chained))})
	}
	if err == nil {
		err = w.out.Flush()
	}
	if closed := w.close(); err == nil {
		err = closed
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("recording: %w", err)
	}
	return w.err
}
