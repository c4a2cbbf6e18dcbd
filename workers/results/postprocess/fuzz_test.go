package postprocess

import (
	"encoding/binary"
	"slices"
	"testing"

	"millrace/stream"
)

// script reads choices from fuzzed bytes, followed by zeros.
type script []byte

func (s *script) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	v := int((*s)[0]) % n
	*s = (*s)[1:]
	return v
}

func pick[T any](s *script, of ...T) T { return of[s.next(len(of))] }

func FuzzDecode(f *testing.F) {
	for kind := range byte(8) {
		f.Add([]byte{kind, 1, 2, 3, 1, 4, 4, 1, 1, 2, 2, 5, 5, 3, 1, 9, 9, 1, 8, 4, 2, 1},
			[]byte("\x00\x00\x80\x3f\x00\x00\x00\x3f\x00\x00\xc0\x7f\x00\x00\x80\x7f"))
		f.Add([]byte{kind, 0, 0, 0, 0, 1, 0, 2, 3, 4, 4, 0, 2, 5, 9, 0, 0}, []byte("\x00\x00\x00\x3f"))
	}
	labels := labelFile(f, "a\nb\nc")
	f.Fuzz(func(t *testing.T, choices, data []byte) {
		s := script(choices)
		var c Config
		switch s.next(7) {
		case 0:
			c.Classify = &Classify{Activation: pick(&s, "", "softmax", "sigmoid"), TopK: s.next(9)}
			c.Labels = pick(&s, "", labels)
		case 1:
			c.Boxes = &Boxes{Activation: pick(&s, "", "softmax", "sigmoid"), Background: pick(&s, false, true)}
			c.Labels = pick(&s, "", labels)
			c.Boxes.Format, c.Boxes.Units, c.Boxes.Threshold, c.Boxes.IoU = pick(&s, "", "xywh", "cxcywh"),
				pick(&s, "", "normalised"), pick(&s, 0, 1, 1e-50, 0.1), pick(&s, 0, 1e-9, 2)
			c.Boxes.Classes = pick(&s, "", "c")
		case 2:
			c.YOLO = &YOLO{Layout: pick(&s, "", "v5", "v8"), Task: pick(&s, "", "detect", "segment", "pose", "obb",
				"end2end", "end2end-segment", "end2end-pose", "end2end-obb")}
			c.Labels, c.YOLO.Threshold = pick(&s, "", labels), pick(&s, 0, 1e-50, 1)
		case 3:
			c.Masks = &Masks{Activation: pick(&s, "", "softmax", "sigmoid")}
		case 4:
			c.Keypoints = &Keypoints{}
		case 5:
			c.Embedding = &Embedding{Normalise: pick(&s, false, true)}
		}
		m := modelOf()
		var out []stream.Tensor
		rows := 1 + s.next(3)
		for _, name := range []string{"a", "b", "c"}[:1+s.next(3)] {
			spec := stream.TensorSpec{Name: name, Datatype: pick(&s, stream.Float32, stream.Float16, stream.Float64,
				stream.Int64, stream.Int32, stream.Uint8, stream.Bytes)}
			shape := []int{rows}
			for range s.next(4) {
				d := pick(&s, 4, 2, 3, 1, 6, 8, 17, 0)
				shape = append(shape, d)
				spec.Shape = append(spec.Shape, pick(&s, d, -1))
			}
			if s.next(8) == 7 && len(shape) > 1 {
				shape[s.next(len(shape))] = pick(&s, 0, 5, 1<<40) // not as declared
			}
			size := stream.Elements(shape) * max(spec.Datatype.Size(), 4) // of empty strings, for BYTES
			if size < 0 || size > 1<<16 {
				size = 1 << 16
			}
			own := slices.Repeat(append(data, 0), 1+size/(1+len(data)))[:size]
			out = append(out, stream.Tensor{Name: name, Datatype: spec.Datatype, Shape: shape, Data: own})
			m.Outputs = append(m.Outputs, spec)
		}
		d, err := New(c, m)
		if err != nil {
			return
		}
		specs := d.Specs()
		for range 2 {
			got, err := d.Decode(out, s.next(3), 1, pick(&s, Mapping{}, letterbox))
			if err != nil {
				continue
			}
			if len(got) != len(specs) {
				t.Fatalf("%d tensors for %d specs", len(got), len(specs))
			}
			for i, g := range got {
				if err := g.CheckSize(""); err != nil {
					t.Fatal(err)
				}
				if c.Kind() == "" {
					continue
				}
				if g.Shape[0] != 1 || g.Name != specs[i].Name || !slices.EqualFunc(g.Shape[1:], specs[i].Shape, agree) {
					t.Fatalf("%s %v is not as Specs says: %+v", g.Name, g.Shape, specs[i])
				}
				if g.Datatype != stream.Float32 {
					continue
				}
				for at := 0; at < len(g.Data); at += 4 {
					if binary.LittleEndian.Uint32(g.Data[at:])&0x7f800000 == 0x7f800000 {
						t.Fatalf("%s: element %d is not finite", g.Name, at/4)
					}
				}
			}
		}
	})
}
