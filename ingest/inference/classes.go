package inference

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"unsafe"

	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// classification is the parameter of an output that asks for the largest elements in place of the data.
const classification = "classification"

// classes replaces output t by the n largest elements of each row, the largest first, as BYTES elements VALUE:INDEX
// or VALUE:INDEX:LABEL. The shape is [rows, n] if the model can have several rows, else [n]; n is at most the number
// of elements of a row. The new elements are in leased memory, released with the result.
func (c *Call) classes(t *oip.Tensor, m *stream.Model, n int64, i int) error {
	size := oip.SizeOf(t.Datatype)
	if size <= 0 {
		return stream.Errorf(stream.InvalidArgument, "outputs["+strconv.Itoa(i)+"].parameters."+classification,
			"is for outputs of numbers, and %s is %s: leave it out", t.Name, t.Datatype)
	}
	rows, shape := 1, []int(nil)
	if !m.AcceptsAnyInput && (m.Axis == stream.FreeAxis || m.MaxBatch > 1) && len(t.Shape) > 0 {
		rows, shape = t.Shape[0], t.Shape[:1:1]
	}
	each := 0
	if rows > 0 {
		each = len(t.Data) / size / rows
	}
	n = min(n, int64(each))
	top, held, err := c.leaseElements(int(n))
	if err != nil {
		return err
	}
	defer held.Release()
	labels, scratch := m.Labels[t.Name], [textSize]byte{}
	text := func(data []byte, e element) []byte {
		out := appendNumber(scratch[:0], t.Datatype, data[e.index*size:], e.value)
		out = strconv.AppendInt(append(out, ':'), int64(e.index), 10)
		if e.index < len(labels) {
			out = append(append(out, ':'), labels[e.index]...)
		}
		return out
	}
	// The first pass measures the text, the second pass writes the text. With a single row, the second pass reuses
	// the largest elements.
	var out *buf.Buf
	var to []byte
	total := 0
	for writing := range 2 {
		if writing == 1 {
			if out, err = c.pool.Lease(total); err != nil {
				return err
			}
			to = out.Bytes()[:0]
		}
		for r := range rows {
			if len(top) == 0 {
				break
			}
			data := t.Data[r*each*size : (r+1)*each*size]
			if writing == 0 || rows > 1 {
				largest(top, t.Datatype, data, size)
			}
			for _, e := range top {
				if one := text(data, e); writing == 0 {
					total += 4 + len(one)
				} else {
					to = oip.AppendBytes(to, one)
				}
			}
		}
	}
	t.Datatype, t.Shape, t.Data = oip.Bytes, append(shape, int(n)), to
	if c.Result.Lease != nil {
		out = buf.Join(out, c.Result.Lease)
	}
	c.Result.Lease, c.Result.Contiguous = out, false
	return nil
}

// textSize is room for the text of an element without a long label.
const textSize = 400

// element is an element of a row.
type element struct {
	value float64
	index int
}

// compare orders elements, the largest first. NaN is the least.
func (a element) compare(b element) int {
	return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.index, b.index))
}

// leaseElements leases memory for n elements.
func (c *Call) leaseElements(n int) ([]element, *buf.Buf, error) {
	const one = int(unsafe.Sizeof(element{}))
	held, err := c.pool.Lease((n + 1) * one)
	if err != nil {
		return nil, nil, err
	}
	at := unsafe.Pointer(unsafe.SliceData(held.Bytes()))
	const align = unsafe.Alignof(element{})
	return unsafe.Slice((*element)(unsafe.Add(at, -uintptr(at)%align)), n), held, nil
}

// largest sets top to the largest elements of a row, in descending order. The row has at least len(top) elements.
func largest(top []element, datatype string, data []byte, size int) {
	for k := range top {
		top[k] = element{oip.Number(datatype, data[k*size:]), k}
	}
	if len(top) > 0 && len(top) < len(data)/size { // a heap with the least element at its root
		for k := len(top)/2 - 1; k >= 0; k-- {
			sink(top, k)
		}
		for k := len(top); k < len(data)/size; k++ {
			if e := (element{oip.Number(datatype, data[k*size:]), k}); e.compare(top[0]) < 0 {
				top[0] = e
				sink(top, 0)
			}
		}
	}
	slices.SortFunc(top, element.compare)
}

// sink moves element k of a heap down to its place.
func sink(heap []element, k int) {
	for {
		below := 2*k + 1
		if below >= len(heap) {
			return
		}
		if below+1 < len(heap) && heap[below].compare(heap[below+1]) < 0 {
			below++
		}
		if heap[k].compare(heap[below]) >= 0 {
			return
		}
		heap[k], heap[below] = heap[below], heap[k]
		k = below
	}
}

// appendNumber appends the first element of data, with the value v as a float: integers exactly, floating-point
// numbers with six decimals.
func appendNumber(dst []byte, datatype string, data []byte, v float64) []byte {
	switch datatype {
	case oip.FP16, oip.BF16, oip.FP32, oip.FP64:
		return strconv.AppendFloat(dst, v, 'f', 6, 64)
	case oip.Uint64:
		return strconv.AppendUint(dst, binary.LittleEndian.Uint64(data), 10)
	case oip.Int64:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(data)), 10)
	}
	return strconv.AppendInt(dst, int64(v), 10)
}
