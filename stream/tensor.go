package stream

import (
	"encoding/binary"
	"math"
)

// Datatype is the type of a tensor's elements, by its Open Inference Protocol name.
type Datatype string

// The datatypes.
const (
	Bool    Datatype = "BOOL"
	Uint8   Datatype = "UINT8"
	Uint16  Datatype = "UINT16"
	Uint32  Datatype = "UINT32"
	Uint64  Datatype = "UINT64"
	Int8    Datatype = "INT8"
	Int16   Datatype = "INT16"
	Int32   Datatype = "INT32"
	Int64   Datatype = "INT64"
	Float16 Datatype = "FP16"
	BFloat  Datatype = "BF16"
	Float32 Datatype = "FP32"
	Float64 Datatype = "FP64"
	Bytes   Datatype = "BYTES"
)

// Size returns the bytes of one element. Size is 0 for BYTES, whose elements vary in length, and for an invalid
// datatype (see Valid).
func (d Datatype) Size() int {
	switch d {
	case Bool, Uint8, Int8:
		return 1
	case Uint16, Int16, Float16, BFloat:
		return 2
	case Uint32, Int32, Float32:
		return 4
	case Uint64, Int64, Float64:
		return 8
	}
	return 0
}

// Valid reports whether d names a datatype.
func (d Datatype) Valid() bool { return d == Bytes || d.Size() > 0 }

// Tensor is a named array. Data is row-major and little-endian; a BYTES element is a uint32 length followed by the
// bytes. Shape and Data are shared, not copied: a holder of a Tensor must not write to Shape or Data.
type Tensor struct {
	Name     string
	Datatype Datatype
	Shape    []int
	Data     []byte
}

// Elements returns the product of the dimensions, or -1 when a dimension is negative or the product does not fit an
// int.
func Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return -1
		}
		if d != 0 && n > math.MaxInt/d {
			return -1
		}
		n *= d
	}
	return n
}

// CheckSize returns an error unless Data has the length required by Shape and Datatype. The error's field is prefix,
// the tensor's name and the wrong part.
func (t *Tensor) CheckSize(prefix string) error {
	n := Elements(t.Shape)
	if n < 0 {
		return Errorf(InvalidArgument, prefix+t.Name+".shape",
			"%v is not a shape: dimensions are not negative and their product fits 63 bits", t.Shape)
	}
	if t.Datatype == Bytes {
		return t.checkBytes(n, prefix)
	}
	size := t.Datatype.Size()
	if size == 0 {
		return Errorf(InvalidArgument, prefix+t.Name+".datatype", "%q is not a datatype", string(t.Datatype))
	}
	if n > math.MaxInt/size || len(t.Data) != n*size {
		return Errorf(InvalidArgument, prefix+t.Name+".data", "%d bytes for shape %v of %s: want %d", len(t.Data),
			t.Shape, t.Datatype, n*size)
	}
	return nil
}

func (t *Tensor) checkBytes(n int, prefix string) error {
	data := t.Data
	for i := range n {
		if len(data) < 4 {
			return Errorf(InvalidArgument, prefix+t.Name+".data", "ends before element %d of %d", i, n)
		}
		l := int(binary.LittleEndian.Uint32(data))
		if l > len(data)-4 {
			return Errorf(InvalidArgument, prefix+t.Name+".data",
				"element %d has a length of %d bytes, but only %d are left", i, l, len(data)-4)
		}
		data = data[4+l:]
	}
	if len(data) != 0 {
		return Errorf(InvalidArgument, prefix+t.Name+".data", "%d bytes after the last of %d elements", len(data), n)
	}
	return nil
}

// AppendFloat32 appends v little-endian, as in Tensor.Data.
func AppendFloat32(dst []byte, v ...float32) []byte {
	for _, f := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// AppendInt64 appends v little-endian, as in Tensor.Data.
func AppendInt64(dst []byte, v ...int64) []byte {
	for _, n := range v {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

// AppendStrings appends v as elements of a BYTES tensor.
func AppendStrings(dst []byte, v ...string) []byte {
	for _, text := range v {
		dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(text))), text...)
	}
	return dst
}

// Float32s returns the elements of an FP32 tensor as a new slice.
func (t *Tensor) Float32s() []float32 {
	out := make([]float32, len(t.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return out
}

// Int64s returns the elements of an INT64 tensor of any shape, in row-major order, as a new slice. The error is
// InvalidArgument for another datatype, and when Data does not have the length required by Shape.
func (t *Tensor) Int64s() ([]int64, error) {
	if err := t.checkIs(Int64); err != nil {
		return nil, err
	}
	out := make([]int64, len(t.Data)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	return out, nil
}

// Strings returns copies of the elements of a BYTES tensor of any shape, in row-major order; the strings need not be
// UTF-8. The error is InvalidArgument for another datatype, and when Data does not have the number of elements
// required by Shape.
func (t *Tensor) Strings() ([]string, error) {
	if err := t.checkIs(Bytes); err != nil {
		return nil, err
	}
	var out []string
	for data := t.Data; len(data) > 0; {
		end := 4 + int(binary.LittleEndian.Uint32(data))
		out = append(out, string(data[4:end]))
		data = data[end:]
	}
	return out, nil
}

// checkIs returns an error unless the tensor has the datatype d and Data of the right size.
func (t *Tensor) checkIs(d Datatype) error {
	if t.Datatype != d {
		return Errorf(InvalidArgument, t.Name+".datatype", "is %s, want %s", t.Datatype, d)
	}
	return t.CheckSize("")
}

// HalfToFloat32 converts an IEEE 754 binary16 to float32. The exponents of binary16 start at -14, the exponents of
// float32 at -126: the product with 2^112 corrects the difference, also for subnormal numbers.
func HalfToFloat32(h uint16) float32 {
	b := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 {
		b |= 0x7f800000 // infinite or NaN
	} else {
		b = math.Float32bits(math.Float32frombits(b) * 0x1p112)
	}
	return math.Float32frombits(b | uint32(h&0x8000)<<16)
}
