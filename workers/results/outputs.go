package results

import (
	"encoding/binary"
	"slices"

	"millrace/stream"
)

// Outputs are tensors with the rows of a batch; the rows from Row on belong to a frame. Frame returns only the
// frame's rows.
type Outputs struct {
	Tensors []stream.Tensor
	Row     int

	cut *cutter // nil: all rows are the frame's
}

// Frame returns the rows of r, valid until the next call, except the shapes, which are never written again. A tensor
// without the rows is an error.
func (o Outputs) Frame(r *stream.Request) ([]stream.Tensor, error) {
	if o.cut == nil {
		return o.Tensors, nil
	}
	return o.cut.rows(o.Tensors, o.Row, r.Rows)
}

// cutter takes the rows of a frame out of the outputs of a batch.
type cutter struct {
	out    []stream.Tensor
	shapes [][]int // by output: the shapes of the previous frame, shared by results
}

func (c *cutter) rows(batch []stream.Tensor, row, n int) ([]stream.Tensor, error) {
	c.out = c.out[:0]
	for i := range batch {
		t := &batch[i]
		if err := t.CheckSize("outputs."); err != nil {
			return nil, stream.Errorf(stream.Internal, "", "the model's answer: %w", err)
		}
		if len(t.Shape) == 0 || t.Shape[0]-row < n {
			return nil, stream.Errorf(stream.Internal, "outputs."+t.Name+".shape",
				"is %v and does not have the rows %d to %d", t.Shape, row, row+n)
		}
		cut := *t
		if n != t.Shape[0] {
			cut.Shape, cut.Data = c.shape(i, n, t.Shape[1:]), rowsOf(t, row, n)
		}
		c.out = append(c.out, cut)
	}
	return c.out, nil
}

// shape returns [n, dims...], reusing an equal shape of the previous frame.
func (c *cutter) shape(i, n int, dims []int) []int {
	for len(c.shapes) <= i {
		c.shapes = append(c.shapes, nil)
	}
	if old := c.shapes[i]; len(old) != 1+len(dims) || old[0] != n || !slices.Equal(old[1:], dims) {
		c.shapes[i] = append([]int{n}, dims...)
	}
	return c.shapes[i]
}

// rowsOf returns the data of n rows of t. The caller has checked the size of t.
func rowsOf(t *stream.Tensor, row, n int) []byte {
	if t.Datatype != stream.Bytes {
		size := len(t.Data) / t.Shape[0]
		return t.Data[row*size : (row+n)*size : (row+n)*size]
	}
	each := stream.Elements(t.Shape[1:])
	from := skip(t.Data, row*each)
	to := from + skip(t.Data[from:], n*each)
	return t.Data[from:to:to]
}

// skip returns how many bytes n elements of BYTES take.
func skip(data []byte, n int) (size int) {
	for range n {
		size += 4 + int(binary.LittleEndian.Uint32(data[size:]))
	}
	return size
}
