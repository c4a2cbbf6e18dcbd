package results_test

import (
	"reflect"
	"testing"

	"millrace/stream"
	"millrace/workers/results"
)

// A stage gets the rows of its frame out of a batch, and the next stage gets the outputs of the first stage. Results
// share the shapes.
func TestFrame(t *testing.T) {
	text := stream.Tensor{Name: "t", Datatype: stream.Bytes, Shape: []int{3, 2},
		Data: []byte(
			"\x01\x00\x00\x00a\x00\x00\x00\x00\x02\x00\x00\x00bc\x01\x00\x00\x00d\x00\x00\x00\x00\x01\x00\x00\x00e")}
	numbers := func(rows int) stream.Tensor {
		return stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{rows, 2},
			Data: []byte{1, 2, 3, 4, 5, 6}[:2*rows]}
	}
	var behind []stream.Tensor
	frame := func(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) { return in.Frame(r) }
	c, m, err := results.New([]any{
		&first{on(results.Stage{After: frame}, nil)},
		&second{on(results.Stage{After: func(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
			behind, _ = in.Frame(r)
			return behind, nil
		}}, nil)},
	}, model, results.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, m, &sink{})
	var shapes [][]int
	for _, want := range [][]stream.Tensor{
		{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, 2}, Data: []byte{1, 2}},
			{Name: "t", Datatype: stream.Bytes, Shape: []int{1, 2}, Data: text.Data[:9]}},
		{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, 2}, Data: []byte{3, 4}},
			{Name: "t", Datatype: stream.Bytes, Shape: []int{1, 2}, Data: text.Data[9:20]}},
	} {
		got, err := c.After(r, []stream.Tensor{numbers(3), text}, len(shapes))
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(behind, want) {
			t.Fatalf("%v and %v, %v; want %v", got, behind, err, want)
		}
		shapes = append(shapes, got[0].Shape)
	}
	if &shapes[0][0] != &shapes[1][0] {
		t.Error("a shape was made twice")
	}
	wide := stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{2, 3}, Data: []byte{1, 2, 3, 4, 5, 6}}
	if got, err := c.After(r, []stream.Tensor{wide}, 1); err != nil || !reflect.DeepEqual(got[0].Shape, []int{1, 3}) ||
		shapes[0][1] != 2 {
		t.Errorf("%v, %v; the shape before is %v", got, err, shapes[0])
	}
	batch := []stream.Tensor{numbers(3), text}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.After(r, batch, 1) }); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func TestFrameOfOtherRows(t *testing.T) {
	c, m, err := results.New([]any{&first{on(results.Stage{After: func(r *stream.Request,
		in results.Outputs) ([]stream.Tensor, error) {
		return in.Frame(r)
	}}, nil)}}, model, results.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, m, &sink{})
	for name, x := range map[string]struct {
		tensor stream.Tensor
		row    int
	}{
		"no shape":    {stream.Tensor{Name: "x", Datatype: stream.Uint8, Data: []byte{1}}, 0},
		"no such row": {stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{2}, Data: []byte{1, 2}}, 2},
		"too short":   {stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{2}, Data: []byte{1}}, 0},
	} {
		if got, err := c.After(r, []stream.Tensor{x.tensor}, x.row); stream.CodeOf(err) != stream.Internal {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
