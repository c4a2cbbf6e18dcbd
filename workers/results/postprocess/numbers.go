package postprocess

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"millrace/stream"
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// toFloat32 returns data as float32. FP32 data are not copied when their address is a
// multiple of four, as in tensors of every runtime; all other data are converted into
// scratch.
func toFloat32(scratch *[]float32, d stream.Datatype, data []byte) []float32 {
	if len(data) == 0 {
		return nil
	}
	if at := unsafe.Pointer(unsafe.SliceData(data)); d == stream.Float32 && littleEndian && uintptr(at)%4 == 0 {
		return unsafe.Slice((*float32)(at), len(data)/4)
	}
	le := binary.LittleEndian
	n := len(data) / d.Size()
	out := resize(scratch, n)
	if d == stream.Float16 { // large tensors are otherwise FP32
		for i := range out {
			out[i] = stream.HalfToFloat32(le.Uint16(data[2*i:]))
		}
		return out
	}
	for i := range out {
		switch d {
		case stream.Float32:
			out[i] = math.Float32frombits(le.Uint32(data[4*i:]))
		case stream.Float64:
			out[i] = float32(math.Float64frombits(le.Uint64(data[8*i:])))
		case stream.Int32:
			out[i] = float32(int32(le.Uint32(data[4*i:])))
		case stream.Int64:
			out[i] = float32(int64(le.Uint64(data[8*i:])))
		default:
			out[i] = float32(data[i])
		}
	}
	return out
}

// resize returns *s with n elements of any value.
func resize[T any](s *[]T, n int) []T {
	*s = slices.Grow((*s)[:0], n)[:n]
	return *s
}

// finite reports whether v is neither NaN nor infinite.
func finite(v float32) bool { return v-v == 0 }

func sigmoid(v float32) float32 { return float32(1 / (1 + math.Exp(-float64(v)))) }
