package inference

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"millrace/internal/oip"
	"millrace/stream"
)

// classification is the parameter of an output that asks for its largest elements in
// place of its data.
const classification = "classification"

// classes makes of output t its n largest elements of each row, the largest first, as
// BYTES elements VALUE:INDEX or VALUE:INDEX:LABEL. The shape is [rows, n] if the model
// can have several rows and [n] otherwise; n is at most the number of elements of a row.
func (c *Call) classes(t *oip.Tensor, m *stream.Model, n int64, i int) error {
	size := oip.SizeOf(t.Datatype)
	if size <= 0 {
		return stream.Errorf(stream.InvalidArgument, "outputs["+strconv.Itoa(i)+"].parameters."+classification, "is for outputs of numbers, and %s is %s: leave it out", t.Name, t.Datatype)
	}
	rows, shape := 1, []int(nil)
	if !m.Any && (m.Axis == stream.FreeAxis || m.MaxBatch > 1) && len(t.Shape) > 0 {
		rows, shape = t.Shape[0], t.Shape[:1:1]
	}
	each := 0
	if rows > 0 {
		each = len(t.Data) / size / rows
	}
	n = min(n, int64(each))
	labels := m.Labels[t.Name]
	type element struct {
		value float64
		index int
	}
	elements := make([]element, each)
	var out, text []byte
	for r := range rows {
		data := t.Data[r*each*size:]
		for k := range elements {
			elements[k] = element{oip.Number(t.Datatype, data[k*size:]), k}
		}
		slices.SortFunc(elements, func(a, b element) int { // NaN is the least
			return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.index, b.index))
		})
		for _, e := range elements[:n] {
			text = appendNumber(text[:0], t.Datatype, data[e.index*size:], e.value)
			text = strconv.AppendInt(append(text, ':'), int64(e.index), 10)
			if e.index < len(labels) {
				text = append(append(text, ':'), labels[e.index]...)
			}
			out = oip.AppendBytes(out, text)
		}
	}
	t.Datatype, t.Shape, t.Data = oip.Bytes, append(shape, int(n)), out
	return nil
}

// appendNumber appends the first element of data, whose value as a float is v: integers
// exactly, and floating-point numbers with six decimals.
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
