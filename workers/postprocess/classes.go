package postprocess

import "math"

// maxClass is past the last class that float32 counts one by one.
const maxClass = 1 << 24

// top returns the index of the highest number of values and that number; -1 when
// none is finite. Of equal ones it is the first.
func top(values []float32) (int, float32) {
	at, most := -1, float32(math.Inf(-1))
	for i, v := range values {
		if v > most && v <= math.MaxFloat32 {
			at, most = i, v
		}
	}
	return at, most
}

// softmaxSum returns the sum of exp(v-of) over the finite values: 1 over it is
// the softmax of the value of. It stops when the sum is past enough.
func softmaxSum(values []float32, of float32, enough float64) (sum float64) {
	for _, v := range values {
		if finite(v) {
			sum += math.Exp(float64(v) - float64(of))
			if sum > enough {
				break
			}
		}
	}
	return sum
}
