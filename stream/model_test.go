package stream_test

import (
	"fmt"
	"math"
	"testing"

	"millrace/stream"
)

func tensor(name string, d stream.Datatype, shape ...int) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: d, Shape: shape}
}

func TestCheck(t *testing.T) {
	const f32, u8, bytes = stream.Float32, stream.Uint8, stream.Bytes
	fixed := &stream.Model{Name: "fixed", MaxBatch: 4,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: f32, Shape: []int{3}},
			{Name: "y", Datatype: u8, Shape: []int{2, 2}}}}
	free := &stream.Model{Name: "free", MaxBatch: 4,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: f32, Shape: []int{-1, 3}}}}
	text := &stream.Model{Name: "text", MaxBatch: 4, Ragged: true,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: bytes, Shape: []int{1}}}}
	image := &stream.Model{Name: "image", MaxBatch: 4, Image: &stream.ImageSpec{},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: u8, Shape: []int{3, 4, 4}}}}
	scalar := &stream.Model{Name: "scalar", MaxBatch: 4,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: f32, Shape: []int{}}}}
	y := tensor("y", u8, 2, 2)
	for _, c := range []struct {
		name  string
		model *stream.Model
		codec stream.Codec
		in    []stream.Tensor
		rows  int
		code  stream.Code
	}{
		{"one row", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 3), y}, 1, ""},
		{"any order", fixed, stream.Tensors, []stream.Tensor{y, tensor("x", f32, 3)}, 1, ""},
		{"an axis of one is one row", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 1, 3), y}, 1, ""},
		{"rows", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 4, 3), tensor("y", u8, 4, 2, 2)}, 4, ""},
		{"rows that differ", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 4, 3), tensor("y", u8, 3, 2, 2)},
			0, stream.InvalidArgument},
		{"too many rows", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 5, 3), tensor("y", u8, 5, 2, 2)}, 0,
			stream.InvalidArgument},
		{"no rows", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 0, 3), tensor("y", u8, 0, 2, 2)}, 0,
			stream.InvalidArgument},
		{"negative rows", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, -1, 3), tensor("y", u8, -1, 2, 2)},
			0, stream.InvalidArgument},
		{"most rows there are", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, math.MaxInt, 3),
			tensor("y", u8, math.MaxInt, 2, 2)}, 0, stream.InvalidArgument},
		{"least rows there are", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, math.MinInt, 3),
			tensor("y", u8, math.MinInt, 2, 2)}, 0, stream.InvalidArgument},
		{"missing", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 3)}, 0, stream.InvalidArgument},
		{"twice", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 3), tensor("x", f32, 3)}, 0,
			stream.InvalidArgument},
		{"too many", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 3), y, tensor("z", u8)}, 0,
			stream.InvalidArgument},
		{"none", fixed, stream.Tensors, nil, 0, stream.InvalidArgument},
		{"datatype", fixed, stream.Tensors, []stream.Tensor{tensor("x", u8, 3), y}, 0, stream.InvalidArgument},
		{"dimension", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 4), y}, 0, stream.InvalidArgument},
		{"rank", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32, 1, 1, 3), y}, 0, stream.InvalidArgument},
		{"no rank", fixed, stream.Tensors, []stream.Tensor{tensor("x", f32), y}, 0, stream.InvalidArgument},
		{"free", free, stream.Tensors, []stream.Tensor{tensor("x", f32, 7, 3)}, 1, ""},
		{"free rows", free, stream.Tensors, []stream.Tensor{tensor("x", f32, 2, 7, 3)}, 2, ""},
		{"free and empty", free, stream.Tensors, []stream.Tensor{tensor("x", f32, 0, 3)}, 1, ""},
		{"free and negative", free, stream.Tensors, []stream.Tensor{tensor("x", f32, -1, 3)}, 0,
			stream.InvalidArgument},
		{"scalar", scalar, stream.Tensors, []stream.Tensor{tensor("x", f32)}, 1, ""},
		{"scalars", scalar, stream.Tensors, []stream.Tensor{tensor("x", f32, 3)}, 3, ""},
		{"picture", image, stream.JPEG, nil, 1, ""},
		{"no picture", image, stream.PCM16, nil, 0, stream.Unsupported},
		{"video", image, stream.H264, nil, 0, stream.Unsupported},
		{"pixels", image, stream.Tensors, []stream.Tensor{tensor("x", u8, 2, 3, 4, 4)}, 2, ""},
		{"picture for tensors", fixed, stream.JPEG, nil, 0, stream.Unsupported},
		{"bytes", text, stream.Opaque, nil, 1, ""},
		{"bytes for numbers", free, stream.Opaque, nil, 0, stream.Unsupported},
		{"anything", anything, stream.VP8, nil, 1, ""},
		{"any tensors", anything, stream.Tensors, []stream.Tensor{y, y}, 1, ""},
		{"any but nothing", anything, stream.Tensors, nil, 0, stream.InvalidArgument},
	} {
		rows, _, err := c.model.Check(&stream.Frame{Codec: c.codec, Inputs: c.in})
		if rows != c.rows || stream.CodeOf(err) != c.code {
			t.Errorf("%s: %d rows, %v", c.name, rows, err)
		}
	}
}

func TestClassIsTheFreeDimensions(t *testing.T) {
	m := &stream.Model{MaxBatch: 4, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8,
		Shape: []int{-1, -1, -1}}}}
	seen := map[uint64]string{}
	class := func(m *stream.Model, shape ...int) uint64 {
		_, c, err := m.Check(&stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{tensor("x", stream.Uint8, shape...)}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for a := range 12 {
		for b := range 12 {
			for c := range 12 {
				k := class(m, a, b, c)
				if other, taken := seen[k]; taken {
					t.Fatalf("%d,%d,%d is of the class of %s", a, b, c, other)
				}
				seen[k] = fmt.Sprint(a, b, c)
				if class(m, 3, a, b, c) != k {
					t.Fatal("rows change the class")
				}
			}
		}
	}
	// Clients could compute a hash with equal values for these two shapes.
	if class(m, 2, 1191, 1) == class(m, 1, 1, (435*433)^(435*868)^2-1) {
		t.Fatal("two shapes have one class")
	}
	m.Ragged = true
	if class(m, 1, 2, 3) != class(m, 3, 2, 1) {
		t.Fatal("shapes of ragged batches differ in class")
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		shape []int
		want  int
	}{
		{nil, 1}, {[]int{0}, 0}, {[]int{2, 3}, 6}, {[]int{-1}, -1}, {[]int{0, -1}, -1},
		{[]int{math.MaxInt}, math.MaxInt},
		{[]int{math.MaxInt, 2}, -1}, {[]int{math.MaxInt, 0, 2}, 0}, {[]int{1 << 32, 1 << 31}, -1},
		{[]int{1 << 31, 1 << 31}, 1 << 62},
		{[]int{math.MinInt}, -1},
	} {
		if got := stream.Elements(c.shape); got != c.want {
			t.Errorf("%v: %d, want %d", c.shape, got, c.want)
		}
	}
}

func TestCheckSize(t *testing.T) {
	element := func(s string) string { return fmt.Sprintf("%c\x00\x00\x00%s", len(s), s) }
	for _, c := range []struct {
		name  string
		t     stream.Tensor
		data  string
		valid bool
	}{
		{"fits", tensor("x", stream.Float32, 2), "12345678", true},
		{"short", tensor("x", stream.Float32, 2), "1234567", false},
		{"long", tensor("x", stream.Float32, 2), "123456789", false},
		{"scalar", tensor("x", stream.Bool), "1", true},
		{"empty", tensor("x", stream.Float64, 3, 0), "", true},
		{"negative", tensor("x", stream.Uint8, -1), "", false},
		{"too large for an int", tensor("x", stream.Float64, math.MaxInt/4), "", false},
		{"product too large", tensor("x", stream.Uint8, 1<<33, 1<<33), "", false},
		{"no datatype", tensor("x", "FP31", 1), "1", false},
		{"bytes", tensor("x", stream.Bytes, 2), element("ab") + element(""), true},
		{"bytes end early", tensor("x", stream.Bytes, 2), element("ab"), false},
		{"bytes are left", tensor("x", stream.Bytes, 1), element("ab") + "x", false},
		{"an element too long", tensor("x", stream.Bytes, 1), "\xff\xff\xff\xffab", false},
		{"half a length", tensor("x", stream.Bytes, 1), "\x01\x00", false},
		{"no bytes", tensor("x", stream.Bytes, 0), "", true},
		{"more elements than any data", tensor("x", stream.Bytes, math.MaxInt), element("a"), false},
	} {
		c.t.Data = []byte(c.data)
		if err := c.t.CheckSize("inputs."); (err == nil) != c.valid {
			t.Errorf("%s: %v", c.name, err)
		} else if err != nil && stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%s: code %s", c.name, stream.CodeOf(err))
		}
	}
}

// A tensor that passes CheckSize has the number of elements given by its shape, and no reader of the elements reads
// beyond the data.
func FuzzCheckSize(f *testing.F) {
	f.Add("FP32", 2, 1, []byte("12345678"))
	f.Add("BYTES", 1, 2, []byte("\x01\x00\x00\x00a\x00\x00\x00\x00"))
	f.Add("BYTES", 1<<40, 1<<40, []byte("\xff\xff\xff\xff"))
	f.Add("UINT8", -1, 0, []byte{})
	f.Fuzz(func(t *testing.T, datatype string, a, b int, data []byte) {
		x := stream.Tensor{Name: "x", Datatype: stream.Datatype(datatype), Shape: []int{a, b}, Data: data}
		if x.CheckSize("") != nil {
			return
		}
		n := stream.Elements(x.Shape)
		if n < 0 || !x.Datatype.Valid() {
			t.Fatalf("passed %v of %q", x.Shape, datatype)
		}
		if size := x.Datatype.Size(); size > 0 && n*size != len(data) {
			t.Fatalf("%d bytes for %v of %s", len(data), x.Shape, datatype)
		}
		if x.Datatype == stream.Bytes && 4*n > len(data) {
			t.Fatalf("%d elements in %d bytes", n, len(data))
		}
	})
}

func TestPolicy(t *testing.T) {
	d := stream.Policy{MaxAge: 1, Deadline: 2, MaxFPS: 3, Window: 4, Mode: stream.Every, Priority: stream.Low}
	if got := (stream.Policy{}).WithDefaults(d); got != d {
		t.Errorf("%+v", got)
	}
	if got := (stream.Policy{Mode: stream.Latest, Window: 9}).WithDefaults(d); got.Mode != stream.Latest ||
		got.Window != 9 || got.MaxFPS != 3 {
		t.Errorf("%+v", got)
	}
	if got := (stream.Policy{}).WithDefaults(stream.Policy{}); got.Mode != stream.Latest ||
		got.Window != stream.DefaultWindowLatest || got.Priority != stream.Normal {
		t.Errorf("%+v", got)
	}
	for field, p := range map[string]stream.Policy{
		"policy": {Mode: "newest"}, "max_age_ms": {MaxAge: -1}, "deadline_ms": {Deadline: -1},
		"max_fps": {MaxFPS: math.NaN()},
		"window":  {Window: stream.MaxWindow + 1}, "priority": {Priority: stream.Delayed},
	} {
		var e *stream.Error
		if err := p.Validate(); err == nil {
			t.Errorf("%s passed", field)
		} else if e = err.(*stream.Error); e.Field != field {
			t.Errorf("%s is called %s", field, e.Field)
		}
	}
}

// Every one-shot request checks its policy, so the check must be cheap.
func TestPolicyOfOneShotsIsCheap(t *testing.T) {
	p := stream.Policy{Mode: stream.Every, Window: 1}
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
