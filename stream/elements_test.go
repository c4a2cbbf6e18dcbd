package stream_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

// Int64s and Strings return the elements of a tensor in row-major order, and refuse other datatypes and data of a
// wrong size.
func TestElementsOfTensors(t *testing.T) {
	numbers := []int64{1, -2, math.MinInt64, math.MaxInt64}
	ids := stream.Tensor{Name: "ids", Datatype: stream.Int64, Shape: []int{2, 2},
		Data: stream.AppendInt64(nil, numbers...)}
	if got, err := ids.Int64s(); err != nil || !slices.Equal(got, numbers) {
		t.Errorf("%v, %v, want %v", got, err, numbers)
	}
	texts := []string{"cat", "", "\xff\x00"}
	labels := stream.Tensor{Name: "labels", Datatype: stream.Bytes, Shape: []int{3},
		Data: stream.AppendStrings(nil, texts...)}
	if got, err := labels.Strings(); err != nil || !slices.Equal(got, texts) {
		t.Errorf("%q, %v, want %q", got, err, texts)
	}
	none := stream.Tensor{Name: "none", Datatype: stream.Bytes, Shape: []int{0}}
	if got, err := none.Strings(); err != nil || len(got) != 0 {
		t.Errorf("no elements: %q, %v", got, err)
	}
	cut, more := labels, ids
	cut.Data, more.Shape = labels.Data[:len(labels.Data)-1], []int{3}
	for want, read := range map[string]func() error{
		"labels.datatype: is BYTES, want INT64": func() error { _, err := labels.Int64s(); return err },
		"ids.datatype: is INT64, want BYTES":    func() error { _, err := ids.Strings(); return err },
		"labels.data: element 2 has a length":   func() error { _, err := cut.Strings(); return err },
		"ids.data: 32 bytes for shape [3]":      func() error { _, err := more.Int64s(); return err },
	} {
		if err := read(); stream.CodeOf(err) != stream.InvalidArgument || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
