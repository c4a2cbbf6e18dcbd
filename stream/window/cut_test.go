package window

import (
	"encoding/binary"
	"fmt"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

// frameOf makes a frame of n samples in the given coding.
func frameOf(mem *buf.Pool, codec stream.Codec, from, n int) stream.Frame {
	var data []byte
	for i := range n {
		if codec == stream.PCM16 {
			data = binary.LittleEndian.AppendUint16(data, uint16(from+i))
		} else {
			data = stream.AppendFloat32(data, float32(from+i)/(1<<15))
		}
	}
	l, _ := mem.Copy(data)
	f := stream.Frame{Codec: codec, Lease: l, Payload: l.Bytes()}
	if codec == stream.Tensors {
		f.Payload, f.Inputs = nil, []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{n},
			Data: l.Bytes()}}
	}
	return f
}

// Windows of samples sent in pieces, in any coding, with overlap, without gap, and with gaps.
func TestWindowsByHops(t *testing.T) {
	for _, codec := range []stream.Codec{stream.PCM16, stream.PCMFloat, stream.Tensors} {
		for _, hop := range []int{1, 2, 4, 5, 7, 9} {
			for _, pieces := range [][]int{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
				{3, 5, 2, 8, 6}, {12, 12}, {4, 4, 4, 4, 4, 4}, {5, 1, 7, 3, 8}} {
				mem := buf.NewPool(0)
				w := &Window{Length: 4, Hop: hop, Memory: mem}
				m := &stream.Model{Name: "m", MaxBatch: 32, Assembly: w,
					Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: []int{4}}}}
				a := w.NewAssembler(m, false)
				var got, want []string
				sent := 0
				for _, n := range pieces {
					f := frameOf(mem, codec, sent, n)
					sent += n
					rows, parts, _, err := a.Assemble(&f)
					if err != nil {
						t.Fatal(err)
					}
					for i := range rows {
						x := stream.Tensor{Data: f.Inputs[0].Data[i*parts.Stride:][:16]}
						line := ""
						for _, v := range x.Float32s() {
							line += fmt.Sprint(v*(1<<15), " ")
						}
						got = append(got, line)
					}
					f.Lease.Release()
				}
				for from := 0; from+4 <= sent; from += hop {
					want = append(want, fmt.Sprint(from, " ", from+1, " ", from+2, " ", from+3, " "))
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s, hop %d, pieces %v:\ngot  %v\nwant %v", codec, hop, pieces, got, want)
				}
				if a.Reset(); mem.Stats().Leases != 0 {
					t.Errorf("%s, hop %d: %+v", codec, hop, mem.Stats())
				}
			}
		}
	}
}

// Windows of pictures, whose memory is released with the windows.
func TestPicturesByHops(t *testing.T) {
	for _, hop := range []int{1, 2, 3, 5} {
		mem := buf.NewPool(0)
		w := &Window{Length: 3, Hop: hop, Memory: mem}
		m := &stream.Model{Name: "m", MaxBatch: 4, Assembly: w, Image: &stream.ImageSpec{},
			Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{3, 1}}}}
		a := w.NewAssembler(m, false)
		var got, want []string
		for i := range 14 {
			l, _ := mem.Copy([]byte{byte(i)})
			r := &stream.Request{Frame: stream.Frame{Codec: stream.JPEG, Lease: l, Payload: l.Bytes()}}
			rows, parts, _, err := a.Assemble(&r.Frame)
			if err != nil {
				t.Fatal(err)
			}
			r.Assembled = parts
			if rows == 1 {
				line := ""
				for _, f := range parts.Frames {
					line += fmt.Sprint(f.Payload[0], " ")
				}
				got = append(got, line)
			}
			r.Unbind()
			if i >= 2 && (i-2)%hop == 0 {
				want = append(want, fmt.Sprint(i-2, " ", i-1, " ", i, " "))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("hop %d:\ngot  %v\nwant %v", hop, got, want)
		}
		if a.Reset(); mem.Stats().Leases != 0 {
			t.Errorf("hop %d: %+v", hop, mem.Stats())
		}
	}
}

// A model can use windows cut for another model with the same window settings.
func TestSameWindows(t *testing.T) {
	model := func(change func(*stream.Model, *Window)) *stream.Model {
		w := &Window{Length: 4, Hop: 2}
		m := &stream.Model{Assembly: w, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Float32,
			Shape: []int{4, 2}}}}
		change(m, w)
		return m
	}
	none := func(*stream.Model, *Window) {}
	image := func(m *stream.Model, _ *Window) { m.Image = &stream.ImageSpec{} }
	for name, c := range map[string]struct {
		a, b func(*stream.Model, *Window)
		want bool
	}{
		"equal":       {none, none, true},
		"length":      {none, func(_ *stream.Model, w *Window) { w.Length = 5 }, false},
		"hop":         {none, func(_ *stream.Model, w *Window) { w.Hop = 3 }, false},
		"none":        {none, func(m *stream.Model, _ *Window) { m.Assembly = nil }, false},
		"none before": {func(m *stream.Model, _ *Window) { m.Assembly = nil }, none, false},
		"pictures":    {none, image, false},
		"both":        {image, image, true},
		"both, resize": {image, func(m *stream.Model, w *Window) {
			image(m, w)
			m.Inputs[0].Shape = []int{4, 9}
		}, true},
		"name":     {none, func(m *stream.Model, _ *Window) { m.Inputs[0].Name = "y" }, false},
		"datatype": {none, func(m *stream.Model, _ *Window) { m.Inputs[0].Datatype = stream.Uint8 }, false},
		"shape":    {none, func(m *stream.Model, _ *Window) { m.Inputs[0].Shape = []int{4, 3} }, false},
	} {
		if got := sameWindows(model(c.a), model(c.b)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
