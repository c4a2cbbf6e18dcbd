package postprocess

import (
	"encoding/binary"
	"slices"

	"millrace/stream"
)

// none answers the raw tensors as they are.
type none struct {
	model  *stream.Model
	shapes shapes
	out    []stream.Tensor
}

func newNone(m *stream.Model) *none { return &none{model: m} }

func (k *none) specs() []stream.TensorSpec { return slices.Clone(k.model.Outputs) }

func (k *none) decode(p *part) ([]stream.Tensor, error) {
	k.out = k.out[:0]
	for i := range p.tensors {
		t := &p.tensors[i]
		if err := checkRows(t, p); err != nil {
			return nil, err
		}
		cut := *t
		if p.rows != t.Shape[0] {
			cut.Shape = k.shapes.of(p.rows, t.Shape[1:]...)
			cut.Data = cutRows(t, p.row, p.rows)
		}
		k.out = append(k.out, cut)
	}
	return k.out, nil
}

// cutRows returns the data of some rows of t, whose size has been checked.
func cutRows(t *stream.Tensor, row, rows int) []byte {
	if t.Datatype != stream.Bytes {
		size := len(t.Data) / t.Shape[0]
		return t.Data[row*size : (row+rows)*size : (row+rows)*size]
	}
	each := stream.Elements(t.Shape[1:])
	from := skip(t.Data, row*each)
	to := from + skip(t.Data[from:], rows*each)
	return t.Data[from:to:to]
}

// skip returns where BYTES element n starts.
func skip(data []byte, n int) (at int) {
	for range n {
		at += 4 + int(binary.LittleEndian.Uint32(data[at:]))
	}
	return at
}
