package streams

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image/jpeg"
	"math"
	"testing"

	"millrace/ingest/frames"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// While somebody watches, the preview keeps a limited number of frames and draws the newest result with a kept frame.
func TestPreviewKeepsFrames(t *testing.T) {
	mem := buf.NewPool(0)
	started, starts := 0, true
	var m preview
	m.start = func(func()) bool { started++; return starts }
	m.changed = func() {}
	add := func(seqs ...uint64) {
		for _, seq := range seqs {
			l, err := mem.Copy([]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			m.add(stream.Frame{Seq: seq, Lease: l})
			l.Release()
		}
	}
	check := func(step string, leases int64, next uint64) {
		t.Helper()
		got := uint64(0)
		if m.result != nil {
			got = m.result.Seq
			if m.frame.Seq != got {
				t.Errorf("%s: result %d is drawn over frame %d", step, got, m.frame.Seq)
			}
		}
		if n := mem.Stats().Leases; n != leases || got != next {
			t.Errorf("%s: %d leases, the next is %d; want %d and %d", step, n, got, leases, next)
		}
	}
	show := func(seq uint64, change func(*stream.Result)) {
		l, err := mem.Copy([]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		r := &stream.Result{Outcome: stream.Answered, Seq: seq, Lease: l}
		if change != nil {
			change(r)
		}
		m.show(r, 0)
	}
	add(1)
	show(1, nil)
	check("nobody watches", 0, 0)
	starts = false
	if _, ok := m.watchPictures(); ok || m.size() != 0 {
		t.Error("there is a watcher without a renderer")
	}
	starts = true
	w, ok := m.watchPictures()
	other, also := m.watchPictures()
	if !ok || !also || started != 2 || m.size() != 2 {
		t.Errorf("%v %v, %d renderers, %d watchers", ok, also, started-1, m.size())
	}
	add(1, 2, 3, 4, 5, 6, 7, 8, 9)
	check("more than are kept", previewFrames, 0)
	show(1, nil)
	check("a frame that is gone", previewFrames, 0)
	show(3, func(r *stream.Result) { r.Partial = true })
	check("a part", previewFrames-1, 0) // frame 2 has no result any more
	show(3, func(r *stream.Result) { r.Outcome = stream.Failed })
	check("an error", previewFrames-1, 0)
	show(3, nil)
	check("a result", previewFrames, 3) // 6 frames, a frame to draw, and its result
	show(5, nil)
	check("a newer one", previewFrames-2, 5)
	if f, r, _, more := m.next(); f.Seq != 5 || r.Seq != 5 || !more || m.result != nil {
		t.Errorf("%d, %v, %v", f.Seq, r, more)
	} else {
		f.Lease.Release()
		r.Release()
	}
	if _, r, _, more := m.next(); r != nil || !more {
		t.Errorf("%v, %v", r, more)
	}
	show(20, nil)
	check("a frame that never came", 0, 0)
	add(21, 22)
	show(21, nil)
	m.leave(w)
	m.leave(other)
	if _, _, _, more := m.next(); more || m.rendering {
		t.Error("it goes on without watchers")
	}
	check("nobody watches any more", 0, 0)
	m.close()
	if _, ok := m.watchPictures(); ok {
		t.Error("somebody watches what is closed")
	}
}

// Results of other models are drawn only for the same picture size.
func TestOtherResultsOfAnotherSize(t *testing.T) {
	mem := buf.NewPool(0)
	m := preview{several: true, start: func(func()) bool { return true }, changed: func() {}}
	if _, ok := m.watchPictures(); !ok {
		t.Fatal("no watcher")
	}
	show := func(seq uint64, model, width, height int) {
		l, err := mem.Copy([]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		m.add(stream.Frame{Seq: seq, Lease: l})
		l.Release()
		m.show(&stream.Result{Outcome: stream.Answered, Seq: seq, Width: width, Height: height}, uint64(model))
	}
	check := func(step string, want int) {
		t.Helper()
		if _, _, others, _ := m.next(); len(others) != want {
			t.Errorf("%s: %d results of other models, want %d", step, len(others), want)
		}
	}
	show(1, 0, 640, 480)
	show(2, 1, 640, 480)
	check("the same size", 1)
	show(3, 1, 480, 640)
	check("another size", 0)
	show(4, 2, 480, 640)
	check("one of two", 1)
	show(5, 0, 480, 640)
	check("all again", 2)
	show(6, 0, 0, 0)
	check("a size that is not known", 2)
}

// A raw or coded frame is drawn in its own size with the objects found, whatever was drawn before.
func TestDraw(t *testing.T) {
	frame := func(width, height int) *stream.Frame {
		return &stream.Frame{Codec: stream.RGB24, Width: width, Height: height,
			Payload: bytes.Repeat([]byte{200, 40, 90}, width*height)}
	}
	coded := func(width, height int) *stream.Frame {
		f := frame(width, height)
		data, err := codec.EncodeJPEG(nil, f.Payload, width, height, 95)
		if err != nil {
			t.Fatal(err)
		}
		return &stream.Frame{Codec: stream.JPEG, Payload: data}
	}
	box := func(v ...float32) (out []stream.Tensor) {
		var data []byte
		for _, x := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		return []stream.Tensor{{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, 1, 4}, Data: data}}
	}
	var p frames.Canvas
	for i, c := range []struct {
		f             *stream.Frame
		outputs       []stream.Tensor
		width, height int
		drawn         bool
	}{
		{frame(64, 48), nil, 64, 48, false},
		{frame(64, 48), box(8, 8, 40, 40), 64, 48, true},
		{frame(96, 32), box(8, 8, 40, 24), 96, 32, true},
		{frame(96, 32), box(8, 8, 40, 24), 96, 32, true},
		{coded(96, 32), box(8, 8, 40, 24), 96, 32, true},
		{coded(32, 32), nil, 32, 32, false},
		{coded(64, 64), box(8, 8, 40, 40), 64, 64, true},
		{frame(64, 48), []stream.Tensor{{Name: "boxes", Datatype: stream.Int32, Shape: []int{1, 1, 4},
			Data: make([]byte, 16)}}, 64, 48, false},
	} {
		data, err := p.Draw(c.f, &stream.Result{Outputs: c.outputs})
		if err != nil {
			t.Fatal(err)
		}
		picture, err := jpeg.Decode(bytes.NewReader(data))
		if err != nil || picture.Bounds().Dx() != c.width || picture.Bounds().Dy() != c.height {
			t.Fatalf("%d: %v, %v", i, picture.Bounds(), err)
		}
		same := func(x, y int) bool {
			r, g, b, _ := picture.At(x, y).RGBA()
			near := func(v uint32, want int) bool { return int(v>>8)-want < 25 && want-int(v>>8) < 25 }
			return near(r, 200) && near(g, 40) && near(b, 90)
		}
		if !same(c.width-3, c.height-2) || !same(2, c.height-2) || same(8, 16) == c.drawn {
			t.Errorf("%d: the frame is as it was in its corners: %v, %v; at the edge of the box: %v", i,
				same(c.width-3, c.height-2), same(2, c.height-2), same(8, 16))
		}
	}
	if _, err := p.Draw(&stream.Frame{Codec: stream.JPEG, Payload: []byte("x")}, &stream.Result{}); err == nil {
		t.Error("nonsense is drawn")
	}
	broken := coded(32, 32)
	broken.Payload = broken.Payload[:len(broken.Payload)/2]
	if _, err := p.Draw(broken, &stream.Result{}); err == nil {
		t.Log("half a picture is drawn")
	}
	if !codec.Turbo {
		return // decodes at the whole size only
	}
	limited := frames.Canvas{Decoder: codec.Decoder{Limits: codec.Limits{MaxDecoded: 33 * 17}, Memory: buf.NewPool(0)}}
	data, err := limited.Draw(coded(65, 33), &stream.Result{Outputs: box(16, 8, 64, 32)})
	if err != nil {
		t.Fatal(err)
	}
	picture, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil || picture.Bounds().Dx() != 33 || picture.Bounds().Dy() != 17 {
		t.Fatalf("%v, %v", picture.Bounds(), err)
	}
	at := func(x, y int) float64 {
		r, g, b, _ := picture.At(x, y).RGBA()
		return math.Abs(float64(r>>8)-200) + math.Abs(float64(g>>8)-40) + math.Abs(float64(b>>8)-90)
	}
	if at(8, 10) < 60 || at(2, 10) > 40 {
		t.Errorf("half the size: the edge of the box is %v, beside it %v from the frame's colour", at(8, 10), at(2, 10))
	}
	limited.Decoder.Limits.MaxDecoded = 4*4 - 1 // and an eighth has 9 x 5
	if _, err := limited.Draw(coded(65, 33), &stream.Result{}); !errors.Is(err, codec.ErrTooLarge) {
		t.Errorf("more pixels than may be decoded: %v", err)
	}
}
