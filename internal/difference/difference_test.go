package difference

import (
	"encoding/binary"
	"math"
	"testing"

	"millrace/internal/oip"
	"millrace/internal/overlay"
)

func box(x, y float64, class int, score float64) overlay.Box {
	return overlay.Box{X1: x, Y1: y, X2: x + 10, Y2: y + 10, Class: overlay.Class{Number: class, Score: score}}
}

func TestBoxes(t *testing.T) {
	labelled := box(0, 0, 1, 0.9)
	labelled.Label = "cat"
	other := labelled
	other.Number, other.Label = 1, "dog"
	nan := math.NaN()
	for _, c := range []struct {
		name string
		a, b []overlay.Box
		want Boxes
	}{
		{"nothing", nil, nil, Boxes{}},
		{"the same, in another order", []overlay.Box{box(0, 0, 1, 0.9), box(50, 0, 2, 0.8)},
			[]overlay.Box{box(50, 0, 2, 0.8), box(0, 0, 1, 0.9)},
			Boxes{A: 2, B: 2, Matched: 2, IoU: 1}},
		{"moved and less sure", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(3, 0, 1, 0.7)},
			Boxes{A: 1, B: 1, Matched: 1, IoU: 70.0 / 130, Drift: 3, MaxDrift: 3, Score: -0.2, MaxScore: -0.2}},
		{"too far", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(5, 0, 1, 0.9)},
			Boxes{A: 1, B: 1, OnlyA: 1, OnlyB: 1}},
		{"another class", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(0, 0, 2, 0.9)},
			Boxes{A: 1, B: 1, Changed: 1}},
		{"another label", []overlay.Box{labelled}, []overlay.Box{other}, Boxes{A: 1, B: 1, Changed: 1}},
		{"a class in one only", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(0, 0, -1, nan)},
			Boxes{A: 1, B: 1, Matched: 1, IoU: 1}},
		{"the nearest is taken", []overlay.Box{box(0, 0, 1, 0.9)}, []overlay.Box{box(2, 0, 1, 0.9), box(1, 0, 1, 0.9)},
			Boxes{A: 1, B: 2, Matched: 1, OnlyB: 1, IoU: 90.0 / 110, Drift: 1, MaxDrift: 1}},
		{"the surest chooses first", []overlay.Box{box(1, 0, 1, 0.5), box(0, 0, 1, 0.9)},
			[]overlay.Box{box(0, 0, 1, 0.9)},
			Boxes{A: 2, B: 1, Matched: 1, OnlyA: 1, IoU: 1}},
		{"a class of its own before a changed one", []overlay.Box{box(0, 0, 1, 0.9), box(0, 0, 2, 0.8)},
			[]overlay.Box{box(0, 0, 2, 0.8)},
			Boxes{A: 2, B: 1, Matched: 1, OnlyA: 1, IoU: 1}},
		{"without an area", []overlay.Box{{X1: 4, X2: 4, Class: overlay.Class{Number: -1, Score: nan}}},
			[]overlay.Box{{X1: 4, X2: 4, Class: overlay.Class{Number: -1, Score: nan}}},
			Boxes{A: 1, B: 1, Matched: 1, IoU: 1}},
	} {
		var d Boxes
		if n := d.add(c.a, c.b, 0.5, func(_, _ *overlay.Box) {}); n != c.want.Differ() {
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

func floats(name string, v ...float32) oip.Tensor {
	var data []byte
	for _, f := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	return oip.Tensor{Name: name, Datatype: oip.FP32, Shape: []int{len(v)}, Data: data}
}

func TestTensors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	one := func(d string, data ...byte) oip.Tensor {
		return oip.Tensor{Name: "x", Datatype: d, Shape: []int{1}, Data: data}
	}
	for _, c := range []struct {
		name  string
		a, b  []oip.Tensor
		agree bool
		want  Tensor // of x
	}{
		{"the same, NaN too", []oip.Tensor{floats("x", 1, nan)}, []oip.Tensor{floats("x", 1, nan)}, true,
			Tensor{Frames: 1}},
		{"within the tolerance", []oip.Tensor{floats("x", 1, 2)}, []oip.Tensor{floats("x", 1, 2.25)}, true,
			Tensor{Frames: 1, Max: 0.25, Mean: 0.125}},
		{"beyond it", []oip.Tensor{floats("x", 1, 2)}, []oip.Tensor{floats("x", 1, 4)}, false,
			Tensor{Frames: 1, Max: 2, Mean: 1}},
		{"not finite", []oip.Tensor{floats("x", inf)}, []oip.Tensor{floats("x", 1)}, false, Tensor{Other: 1}},
		{"another shape", []oip.Tensor{floats("x", 1)}, []oip.Tensor{floats("x", 1, 2)}, false, Tensor{Other: 1}},
		{"another datatype", []oip.Tensor{one(oip.Int8, 1)}, []oip.Tensor{one(oip.Uint8, 1)}, false, Tensor{Other: 1}},
		{"only in A", []oip.Tensor{floats("x", 1)}, nil, false, Tensor{Other: 1}},
		{"only in B", nil, []oip.Tensor{floats("x", 1)}, false, Tensor{Other: 1}},
		{"two of one name", []oip.Tensor{floats("x", 1), floats("x", 2)}, []oip.Tensor{floats("x", 1), floats("x", 2)},
			true, Tensor{Frames: 2}},
		{"words", []oip.Tensor{one(oip.Bytes, 1, 0, 0, 0, 'a')}, []oip.Tensor{one(oip.Bytes, 1, 0, 0, 0, 'b')}, false,
			Tensor{Frames: 1, Max: 1, Mean: 1}},
	} {
		all := map[string]*Tensor{}
		agree := addTensors(all, c.a, c.b, 0.5)
		got := *all["x"]
		got.finish()
		got.Name, got.sum, got.numbers = "", 0, 0
		if agree != c.agree || got != c.want {
			t.Errorf("%s: agree %v\ngot  %+v\nwant %+v", c.name, agree, got, c.want)
		}
	}
}

// tracked are the outputs of a model whose boxes have ids: one box for each id, 100 pixels apart.
func tracked(ids ...int64) []oip.Tensor {
	boxes := oip.Tensor{Name: "boxes", Datatype: oip.FP32, Shape: []int{1, len(ids), 4}}
	list := oip.Tensor{Name: "ids", Datatype: oip.Int64, Shape: []int{1, len(ids)}}
	for i, id := range ids {
		x := float32(100 * i)
		boxes.Data = append(boxes.Data, floats("", x, 0, x+10, 10).Data...)
		list.Data = binary.LittleEndian.AppendUint64(list.Data, uint64(id))
	}
	return []oip.Tensor{boxes, list}
}

func TestTracks(t *testing.T) {
	for _, c := range []struct {
		name  string
		a, b  [][]int64 // ids, frame by frame
		want  Tracks
		agree int
	}{
		{"the same", [][]int64{{1, 2}, {1, 2}}, [][]int64{{1, 2}, {1, 2}}, Tracks{Compared: 4}, 2},
		{"renamed", [][]int64{{1, 2}, {1, 2}}, [][]int64{{8, 1}, {8, 1}}, Tracks{Compared: 4}, 2},
		{"one was lost in B", [][]int64{{1}, {1}, {1}}, [][]int64{{1}, {2}, {2}}, Tracks{Compared: 3, Switched: 1}, 2},
		{"one was lost in A", [][]int64{{1}, {2}, {2}}, [][]int64{{5}, {5}, {5}}, Tracks{Compared: 3, Switched: 1}, 2},
		{"exchanged", [][]int64{{1, 2}, {1, 2}, {1, 2}}, [][]int64{{1, 2}, {2, 1}, {2, 1}},
			Tracks{Compared: 6, Switched: 2}, 2},
		{"not yet followed", [][]int64{{0}, {1}, {1}}, [][]int64{{0}, {0}, {7}}, Tracks{Compared: 1, OneOnly: 1}, 2},
	} {
		var d Summary
		for i := range c.a {
			if n := d.Add(tracked(c.a[i]...), tracked(c.b[i]...), true, Options{IoU: 0.5}); n != 0 {
				t.Errorf("%s: %d boxes differ in frame %d", c.name, n, i)
			}
		}
		d.Finish()
		got := *d.Tracks
		if got.Compared != c.want.Compared || got.Switched != c.want.Switched || got.OneOnly != c.want.OneOnly ||
			d.Agree != c.agree || len(d.Tensors) != 0 || *d.Share != 1 {
			t.Errorf("%s: %+v, %d frames agree, %+v", c.name, got, d.Agree, d.Tensors)
		}
	}

	// Without ids on one side, ids cannot be compared.
	var d Summary
	d.Add(tracked(1), tracked(1)[:1], true, Options{IoU: 0.5})
	if d.Finish(); d.Tracks != nil || len(d.Tensors) != 1 || d.Tensors[0].Name != "ids" || d.Tensors[0].Other != 1 ||
		d.Agree != 0 {
		t.Errorf("%+v", d)
	}
}
