package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"millrace/client/overlay"
	"millrace/internal/oip"
	"millrace/internal/recording"
	"millrace/stream"
)

func box(x, y float64, class int, score float64) overlay.Box {
	return overlay.Box{X1: x, Y1: y, X2: x + 10, Y2: y + 10, Class: overlay.Class{Number: class, Score: score}}
}

func TestBoxDiff(t *testing.T) {
	labelled := box(0, 0, 1, 0.9)
	labelled.Label = "cat"
	other := labelled
	other.Number, other.Label = 1, "dog"
	nan := math.NaN()
	for _, c := range []struct {
		name string
		a, b []overlay.Box
		want boxDiff
	}{
		{"nothing", nil, nil, boxDiff{}},
		{"the same, in another order", []overlay.Box{box(0, 0, 1, 0.9), box(50, 0, 2, 0.8)}, []overlay.Box{box(50, 0, 2, 0.8), box(0, 0, 1, 0.9)},
			boxDiff{A: 2, B: 2, Matched: 2, IoU: 1}},
		{"moved and less sure", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(3, 0, 1, 0.7)},
			boxDiff{A: 1, B: 1, Matched: 1, IoU: 70.0 / 130, Drift: 3, MaxDrift: 3, Score: -0.2, MaxScore: -0.2}},
		{"too far", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(5, 0, 1, 0.9)}, boxDiff{A: 1, B: 1, OnlyA: 1, OnlyB: 1}},
		{"another class", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(0, 0, 2, 0.9)}, boxDiff{A: 1, B: 1, Changed: 1}},
		{"another label", []overlay.Box{labelled}, []overlay.Box{other}, boxDiff{A: 1, B: 1, Changed: 1}},
		{"a class in one only", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(0, 0, -1, nan)}, boxDiff{A: 1, B: 1, Matched: 1, IoU: 1}},
		{"the nearest is taken", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(2, 0, 1, 0.9), box(1, 0, 1, 0.9)},
			boxDiff{A: 1, B: 2, Matched: 1, OnlyB: 1, IoU: 90.0 / 110, Drift: 1, MaxDrift: 1}},
		{"the surest chooses first", []overlay.Box{box(1, 0, 1, 0.5), box(0, 0, 1, 0.9)}, []overlay.Box{box(0, 0, 1, 0.9)},
			boxDiff{A: 2, B: 1, Matched: 1, OnlyA: 1, IoU: 1}},
		{"a class of its own before a changed one", []overlay.Box{box(0, 0, 1, 0.9), box(0, 0, 2, 0.8)}, []overlay.Box{box(0, 0, 2, 0.8)},
			boxDiff{A: 2, B: 1, Matched: 1, OnlyA: 1, IoU: 1}},
		{"without an area", []overlay.Box{{X1: 4, X2: 4, Class: overlay.Class{Number: -1, Score: nan}}}, []overlay.Box{{X1: 4, X2: 4, Class: overlay.Class{Number: -1, Score: nan}}},
			boxDiff{A: 1, B: 1, Matched: 1, IoU: 1}},
	} {
		var d boxDiff
		if n := d.add(c.a, c.b, 0.5); n != c.want.differ() {
			t.Errorf("%s: %d differ", c.name, n)
		}
		d.finish()
		d.withScore = 0
		near := func(p *float64, want float64) {
			if math.Abs(*p-want) < 1e-9 {
				*p = want
			}
		}
		near(&d.IoU, c.want.IoU)
		near(&d.Score, c.want.Score)
		near(&d.MaxScore, c.want.MaxScore)
		if d != c.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, d, c.want)
		}
	}
}

func floats(name string, v ...float32) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: stream.Float32, Shape: []int{len(v)}, Data: stream.AppendFloat32(nil, v...)}
}

func TestTensorDiff(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	one := func(d stream.Datatype, data ...byte) stream.Tensor {
		return stream.Tensor{Name: "x", Datatype: d, Shape: []int{1}, Data: data}
	}
	for _, c := range []struct {
		name  string
		a, b  []stream.Tensor
		agree bool
		want  tensorDiff // of x
	}{
		{"the same, NaN too", []stream.Tensor{floats("x", 1, nan)}, []stream.Tensor{floats("x", 1, nan)}, true, tensorDiff{Frames: 1}},
		{"within the tolerance", []stream.Tensor{floats("x", 1, 2)}, []stream.Tensor{floats("x", 1, 2.25)}, true, tensorDiff{Frames: 1, Max: 0.25, Mean: 0.125}},
		{"beyond it", []stream.Tensor{floats("x", 1, 2)}, []stream.Tensor{floats("x", 1, 4)}, false, tensorDiff{Frames: 1, Max: 2, Mean: 1}},
		{"not finite", []stream.Tensor{floats("x", inf)}, []stream.Tensor{floats("x", 1)}, false, tensorDiff{Other: 1}},
		{"another shape", []stream.Tensor{floats("x", 1)}, []stream.Tensor{floats("x", 1, 2)}, false, tensorDiff{Other: 1}},
		{"another datatype", []stream.Tensor{one(stream.Int8, 1)}, []stream.Tensor{one(stream.Uint8, 1)}, false, tensorDiff{Other: 1}},
		{"only in A", []stream.Tensor{floats("x", 1)}, nil, false, tensorDiff{Other: 1}},
		{"only in B", nil, []stream.Tensor{floats("x", 1)}, false, tensorDiff{Other: 1}},
		{"two of one name", []stream.Tensor{floats("x", 1), floats("x", 2)}, []stream.Tensor{floats("x", 1), floats("x", 2)}, true, tensorDiff{Frames: 2}},
		{"words", []stream.Tensor{one(stream.Bytes, 1, 0, 0, 0, 'a')}, []stream.Tensor{one(stream.Bytes, 1, 0, 0, 0, 'b')}, false, tensorDiff{Frames: 1, Max: 1, Mean: 1}},
	} {
		all := map[string]*tensorDiff{}
		agree := addTensors(all, c.a, c.b, 0.5)
		got := *all["x"]
		got.finish()
		got.Name, got.sum, got.numbers = "", 0, 0
		if agree != c.agree || got != c.want {
			t.Errorf("%s: agree %v\ngot  %+v\nwant %+v", c.name, agree, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		d    stream.Datatype
		bits uint64
		want float64
	}{
		{stream.Uint8, 0xff, 255}, {stream.Int8, 0xff, -1}, {stream.Uint16, 0xffff, 65535}, {stream.Int16, 0xffff, -1},
		{stream.Uint32, 0xffffffff, 4294967295}, {stream.Int32, 0xffffffff, -1}, {stream.Uint64, 1 << 40, 1 << 40}, {stream.Int64, math.MaxUint64, -1},
		{stream.Float16, 0x3c00, 1}, {stream.Float16, 0xc100, -2.5}, {stream.Float16, 0x0001, math.Ldexp(1, -24)}, {stream.Float16, 0x7bff, 65504},
		{stream.Float16, 0xfc00, math.Inf(-1)}, {stream.BFloat, 0x3f80, 1}, {stream.BFloat, 0xc020, -2.5},
		{stream.Float32, uint64(math.Float32bits(1.5)), 1.5}, {stream.Float64, math.Float64bits(-0.1), -0.1},
	} {
		if got := number(c.d, le.AppendUint64(nil, c.bits)); got != c.want {
			t.Errorf("%s %x: got %v, want %v", c.d, c.bits, got, c.want)
		}
	}
	if !math.IsNaN(float16(0x7e00)) {
		t.Error("a half that is no number")
	}
}

// mill is a recording of frames that ended so; nil = not at all.
func mill(t *testing.T, endings ...*recording.Ending) *recording.Reader {
	t.Helper()
	var file bytes.Buffer
	w, err := recording.NewWriter(&file, recording.Header{Model: "m"})
	for i, e := range endings {
		at := time.Duration(i) * 100 * time.Millisecond
		if err == nil {
			err = w.Frame(&recording.Frame{Seq: uint64(i), At: at, Payload: []byte{byte(i)}})
		}
		if e != nil && err == nil {
			end := *e
			end.Seq, end.At = uint64(i), at+10*time.Millisecond
			err = w.Ending(&end)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := recording.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func result(outputs ...stream.Tensor) *recording.Ending {
	e := &recording.Ending{Outcome: recording.Result}
	for _, o := range outputs {
		e.Outputs = append(e.Outputs, oip.Tensor{Name: o.Name, Datatype: string(o.Datatype), Shape: o.Shape, Data: o.Data})
	}
	return e
}

func TestDiffer(t *testing.T) {
	found := func(v ...float32) stream.Tensor {
		b := floats("boxes", v...)
		b.Shape = []int{1, len(v) / 4, 4}
		return b
	}
	one := result(found(0, 0, 10, 10))
	drop := &recording.Ending{Outcome: recording.Drop, Reason: "stale"}
	fail := &recording.Ending{Outcome: recording.Failed, Code: "internal"}
	d := func(a, b *recording.Reader) *difference {
		t.Helper()
		d, err := differ(a, b, 0.5, 0.001)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	// A drop, an ending that is missing and an error in both are no answers; an error in one is an empty one.
	got := d(mill(t, one, one, one, fail, one), mill(t, one, drop, nil, fail, fail, one))
	if got.Frames != 5 || got.Identical != 5 || got.OnlyB != 1 || got.OnlyA != 0 || got.Compared != 2 || got.Agree != 1 || *got.Share != 0.5 ||
		got.Boxes.Matched != 1 || got.Boxes.OnlyA != 1 || got.A.Results != 4 || got.B.Results != 2 || got.B.Drops["stale"] != 1 || got.B.Lost != 1 || got.B.Errors["internal"] != 2 {
		t.Errorf("%+v, %+v", got, got.Boxes)
	}
	if got.A.P50 != 10 || got.A.P99 != 10 || len(got.Worst) != 1 || got.Worst[0] != (worst{Seq: 4, Seconds: 0.4, Boxes: 1}) {
		t.Errorf("%+v", got)
	}

	none := result(found())
	if got := d(mill(t, none), mill(t, none)); *got.Share != 1 || got.judge(1) != nil || got.Boxes.A != 0 {
		t.Errorf("nothing was found, by both: %+v", got)
	}
	if got := d(mill(t, one), mill(t, drop)); got.Share != nil || got.judge(0.1) == nil {
		t.Errorf("nothing to compare: %+v", got)
	}
	if got := d(mill(t, result(floats("y", 1)), result(floats("y", 1))), mill(t, result(floats("y", 1)), result(floats("y", 2)))); *got.Share != 0.5 || got.Boxes != nil || got.Tensors[0].Max != 1 {
		t.Errorf("without boxes: %+v", got)
	}
	// What is called boxes and is none is a tensor like others.
	odd := result(floats("boxes", 1, 2, 3))
	if got := d(mill(t, odd), mill(t, odd)); got.Boxes != nil || *got.Share != 1 || got.Tensors[0].Frames != 1 {
		t.Errorf("odd boxes: %+v", got)
	}
}
