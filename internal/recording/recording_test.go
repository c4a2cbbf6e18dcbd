package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"millrace/internal/oip"
)

var header = Header{
	Model: "eyes", Version: "2", Source: "clip.mp4", Codec: "jpeg", Options: map[string]string{"policy": "latest"},
	Started: time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC),
}

// three is a stream with every kind of ending, including an ending in two parts, and a frame without an ending.
func three() []Item {
	// NaN
	boxes := oip.Tensor{Name: "boxes", Datatype: oip.FP32, Shape: []int{1, 1, 4},
		Data: bytes.Repeat([]byte{0, 0, 0xc0, 0x7f}, 4)}
	words := oip.Tensor{Name: "labels", Datatype: oip.Bytes, Shape: []int{1}, Data: []byte("\x02\x00\x00\x00\xff\x00")}
	frame := func(seq uint64) *Frame {
		return &Frame{Seq: seq, At: time.Duration(seq) * 40 * time.Millisecond, CaptureUS: int64(seq) * 40000,
			Codec: "jpeg", Width: 64, Height: 48,
			Params: json.RawMessage(`{"roi":[1,2]}`), Payload: bytes.Repeat([]byte{byte(seq)}, 30)}
	}
	timing := Timing{Received: 1772366400000005, Queue: 1, Prepare: 2, Run: 3, Total: 6}
	return []Item{
		{Frame: frame(0)},
		{Frame: frame(1)},
		{Ending: &Ending{Seq: 1, At: 50 * time.Millisecond, Outcome: Drop, Reason: "superseded"}},
		{Ending: &Ending{Seq: 0, At: 60 * time.Millisecond, Outcome: Result, Partial: true, Model: "eyes",
			Outputs: []oip.Tensor{words}, Timing: timing}},
		{Ending: &Ending{Seq: 0, At: 61 * time.Millisecond, Outcome: Result, Model: "eyes",
			Outputs: []oip.Tensor{boxes, words}, Timing: timing, Width: 64, Height: 48, Batch: 2,
			Params: oip.Params{{Key: "tokens", Kind: oip.Int, Int: 3}}}},
		{Frame: frame(5)},
		{Ending: &Ending{Seq: 5, At: time.Second, Outcome: Failed, Code: "unsupported", Message: "no picture"}},
		{Frame: &Frame{Seq: 9, At: time.Second, Payload: []byte{}}},
	}
}

func write(t testing.TB, items []Item, finish bool) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, header)
	for _, it := range items {
		if err != nil {
			t.Fatal(err)
		}
		if it.Frame != nil {
			err = w.Frame(it.Frame)
		} else {
			err = w.Ending(it.Ending)
		}
	}
	if err == nil && finish {
		err = w.Close()
	} else if err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(file.Len()) {
		t.Errorf("Size says %d, there are %d bytes", w.Size(), file.Len())
	}
	return file.Bytes()
}

func open(t testing.TB, file []byte) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func all(t testing.TB, r *Reader) (items []Item) {
	t.Helper()
	for {
		it, err := r.Next()
		if errors.Is(err, io.EOF) {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, it)
	}
}

// same compares by JSON, to treat NaN of raw tensors and nil slices as equal.
func same(t testing.TB, got, want any) {
	t.Helper()
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("got  %s\nwant %s (%v, %v)", a, b, err1, err2)
	}
}

func TestRoundTrip(t *testing.T) {
	want := three()
	for _, finish := range []bool{true, false} {
		r := open(t, write(t, want, finish))
		same(t, r.Header(), header)
		same(t, all(t, r), want)
		if r.Frames() != 4 || r.Seq(2) != 5 || (r.Cut() == nil) != finish {
			t.Errorf("%d frames, the third %d, %v", r.Frames(), r.Seq(2), r.Cut())
		}
		f, err := r.Frame(5)
		if err != nil {
			t.Fatal(err)
		}
		same(t, f, want[5].Frame)
		if f, err := r.Frame(3); f != nil || err != nil {
			t.Errorf("a frame that is not there: %v, %v", f, err)
		}
		e, err := r.Endings(0)
		if err != nil {
			t.Fatal(err)
		}
		same(t, e, []*Ending{want[3].Ending, want[4].Ending})
		if e, err := r.Endings(9); len(e) != 0 || err != nil {
			t.Errorf("a frame without an ending: %v, %v", e, err)
		}
	}
}

// TestCutAnywhere cuts a file after each of its bytes: exactly the complete records before the cut are read.
func TestCutAnywhere(t *testing.T) {
	want := three()
	file := write(t, want, true)
	var ends []int // of the items
	for i := range want {
		ends = append(ends, len(write(t, want[:i+1], false)))
	}
	begin := len(write(t, nil, false))
	for n := range len(file) {
		r, err := NewReader(bytes.NewReader(file[:n]), int64(n))
		if n < begin {
			if err == nil {
				t.Fatalf("%d bytes: a file without its header was read", n)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		whole, frames := 0, 0
		for i, end := range ends {
			if end <= n {
				whole++
				if want[i].Frame != nil {
					frames++
				}
			}
		}
		if r.Cut() == nil || r.Frames() != frames {
			t.Errorf("%d bytes: %d frames, want %d; %v", n, r.Frames(), frames, r.Cut())
		}
		got := all(t, r)
		if len(got) != whole {
			t.Fatalf("%d bytes: %d items, want %d", n, len(got), whole)
		}
		if whole > 0 {
			same(t, got, want[:whole])
		}
	}
}

// TestDamageAnywhere changes each byte: nothing is read that was not written.
func TestDamageAnywhere(t *testing.T) {
	want := three()
	file := write(t, want, true)
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 0x41
		r, err := NewReader(bytes.NewReader(bad), int64(len(bad)))
		if err != nil {
			continue
		}
		for n := 0; ; n++ {
			it, err := r.Next()
			if err != nil {
				if n < len(want) && errors.Is(err, io.EOF) && r.Cut() == nil {
					t.Fatalf("byte %d: %d items are missing, and nobody says so", i, len(want)-n)
				}
				break
			}
			if n >= len(want) {
				t.Fatalf("byte %d: more than was written", i)
			}
			same(t, it, want[n])
		}
	}
}

// TestManyIndexes: the index is a chain, and the writer keeps one link in memory.
func TestManyIndexes(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file, header)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3*indexEvery + 7
	for i := range uint64(n) {
		if err := w.Frame(&Frame{Seq: 2 * i, At: time.Duration(i), Payload: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		if len(w.index) > indexEvery || cap(w.index) > 2*indexEvery {
			t.Fatalf("%d entries in memory", cap(w.index))
		}
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r := open(t, file.Bytes())
	if r.Frames() != n || r.Cut() != nil {
		t.Fatalf("%d frames, %v", r.Frames(), r.Cut())
	}
	for _, i := range []uint64{0, indexEvery - 1, indexEvery, n - 1} {
		if f, err := r.Frame(2 * i); err != nil || string(f.Payload) != fmt.Sprint(i) {
			t.Errorf("frame %d: %v, %v", i, f, err)
		}
	}
	// A damaged link: everything is read anew.
	b := bytes.Clone(file.Bytes())
	b[w.chained+frameLen+headLen] ^= 1
	if r, err := NewReader(bytes.NewReader(b), int64(len(b))); err != nil || r.Frames() < n-7 || r.Cut() == nil {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	w, err := NewWriter(io.Discard, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Frame(&Frame{Seq: 3}); err != nil {
		t.Error(err)
	}
	for _, seq := range []uint64{3, 0} {
		if err := w.Frame(&Frame{Seq: seq}); err == nil || !strings.Contains(err.Error(), "after frame 3") {
			t.Errorf("frame %d: %v", seq, err)
		}
	}
	if err := w.Frame(&Frame{Seq: 4, Params: json.RawMessage("{")}); err == nil {
		t.Error("parameters that are no JSON were taken")
	}
	if err := w.Ending(&Ending{Outcome: Result,
		Outputs: []oip.Tensor{{Name: "x", Datatype: oip.FP32, Shape: []int{2}, Data: []byte{1}}}}); err == nil ||
		!strings.Contains(err.Error(), "outputs") {
		t.Errorf("a tensor of another size: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Frame(&Frame{Seq: 5}); err == nil {
		t.Error("a closed file took a frame")
	}
	future := write(t, nil, true)
	future[8] = 2
	for text, want := range map[string]string{"": "too short", strings.Repeat("x", 100): "does not begin",
		string(future): "version 2"} {
		if _, err := NewReader(strings.NewReader(text), int64(len(text))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.mill")
	w, err := Create(name, header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(name, header); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("written over: %v", err)
	}
	if err := errors.Join(w.Frame(&Frame{Payload: []byte("x")}), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := Open(name)
	if err != nil || r.Frames() != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{filepath.Dir(name), name + "x"} {
		if _, err := Open(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// full is a disk with room for n bytes.
type full struct{ n int }

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

func TestFullDisk(t *testing.T) {
	w, err := NewWriter(&full{4 << 20}, header)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20)
	for i := range uint64(10) {
		err = w.Frame(&Frame{Seq: i, Payload: big})
	}
	for _, err := range []error{err, w.Flush(), w.Close(), w.Close()} {
		if err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("got %v", err)
		}
	}
}

// FuzzReader: any file is read to an end without harm, and its items can be written and read back unchanged.
func FuzzReader(f *testing.F) {
	f.Add(write(f, three(), true))
	f.Add(write(f, three(), false))
	f.Add(write(f, nil, true))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		resum(file)
		r, err := NewReader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		var items []Item
		for {
			it, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
			items = append(items, it)
		}
		for i := range r.Frames() {
			_, _ = r.Frame(r.Seq(i))
			_, _ = r.Endings(r.Seq(i))
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, r.Header())
		if err != nil {
			return
		}
		for _, it := range items {
			if it.Frame != nil {
				err = w.Frame(it.Frame)
			} else {
				err = w.Ending(it.Ending)
			}
			if err != nil {
				return // frames out of order, by a crafted index
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := all(t, open(t, again.Bytes())); !reflect.DeepEqual(got, items) && len(items) > 0 {
			same(t, got, items)
		}
	})
}

// resum corrects the checksums, so that a fuzzer gets past them.
func resum(file []byte) {
	le := binary.LittleEndian
	for at := preamble; at+frameLen+headLen <= len(file); {
		n := int(le.Uint32(file[at:]))
		if n > len(file)-at-frameLen {
			return
		}
		le.PutUint32(file[at+4:], checksum(file[at:at+4], file[at+frameLen:at+frameLen+n]))
		at += frameLen + n
	}
}
