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

// softmaxSum returns the sum of exp(v - values[at]) over the finite values: 1
// over it is the softmax of values[at]. It stops when the sum is past enough.
func softmaxSum(values []float32, at int, enough float64) float64 {
	sum := 1.0
	for i, v := range values {
		if i != at && finite(v) {
			sum += math.Exp(float64(v) - float64(values[at]))
			if sum > enough {
				break
			}
		}
	}
	return sum
}
