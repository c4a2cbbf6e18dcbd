package main

import (
	"bytes"
	"testing"
	"time"

	"millrace/internal/difference"
	"millrace/internal/oip"
	"millrace/internal/recording"
	"millrace/stream"
)

// mill returns a recording of frames with these endings; nil = no ending.
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

func floats(name string, v ...float32) oip.Tensor {
	return oip.Tensor{Name: name, Datatype: oip.FP32, Shape: []int{len(v)}, Data: stream.AppendFloat32(nil, v...)}
}

func result(outputs ...oip.Tensor) *recording.Ending {
	return &recording.Ending{Outcome: recording.Result, Outputs: outputs}
}

func TestCompareRecordings(t *testing.T) {
	found := func(v ...float32) oip.Tensor {
		b := floats("boxes", v...)
		b.Shape = []int{1, len(v) / 4, 4}
		return b
	}
	one := result(found(0, 0, 10, 10))
	drop := &recording.Ending{Outcome: recording.Drop, Reason: "stale"}
	fail := &recording.Ending{Outcome: recording.Failed, Code: "internal"}
	d := func(a, b *recording.Reader) *comparison {
		t.Helper()
		d, err := compareRecordings(a, b, difference.Options{IoU: 0.5, Tolerance: 0.001})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	// A drop, a missing ending, or errors in both recordings are not answers; an error in one recording is an empty
	// answer.
	got := d(mill(t, one, one, one, fail, one), mill(t, one, drop, nil, fail, fail, one))
	if got.Frames != 5 || got.Identical != 5 || got.OnlyB != 1 || got.OnlyA != 0 || got.Compared != 2 ||
		got.Agree != 1 || *got.Share != 0.5 ||
		got.Boxes.Matched != 1 || got.Boxes.OnlyA != 1 || got.A.Results != 4 || got.B.Results != 2 ||
		got.B.Drops["stale"] != 1 || got.B.Lost != 1 || got.B.Errors["internal"] != 2 {
		t.Errorf("%+v, %+v", got, got.Boxes)
	}
	if got.A.P50 != 10 || got.A.P99 != 10 || len(got.Worst) != 1 ||
		got.Worst[0] != (worst{Seq: 4, Seconds: 0.4, Boxes: 1}) {
		t.Errorf("%+v", got)
	}

	none := result(found())
	if got := d(mill(t, none), mill(t, none)); *got.Share != 1 || got.checkShare(1) != nil || got.Boxes.A != 0 {
		t.Errorf("nothing was found, by both: %+v", got)
	}
	if got := d(mill(t, one), mill(t, drop)); got.Share != nil || got.checkShare(0.1) == nil {
		t.Errorf("nothing to compare: %+v", got)
	}
	if got := d(mill(t, result(floats("y", 1)), result(floats("y", 1))),
		mill(t, result(floats("y", 1)), result(floats("y", 2)))); *got.Share != 0.5 || got.Boxes != nil ||
		got.Tensors[0].Max != 1 {
		t.Errorf("without boxes: %+v", got)
	}
	// An output named boxes without the shape of boxes is compared like other tensors.
	odd := result(floats("boxes", 1, 2, 3))
	if got := d(mill(t, odd), mill(t, odd)); got.Boxes != nil || *got.Share != 1 || got.Tensors[0].Frames != 1 {
		t.Errorf("odd boxes: %+v", got)
	}
}
