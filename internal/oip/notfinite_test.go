package oip

import (
	"encoding/binary"
	"math"
	"testing"
)

// Numbers that are not finite are written as the words of Python's json, and read back to the same bits.
func TestNumbersThatAreNotFinite(t *testing.T) {
	values := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1.5}
	for datatype, data := range map[string][]byte{
		FP32: func() (b []byte) {
			for _, v := range values {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			}
			return b
		}(),
		FP64: func() (b []byte) {
			for _, v := range values {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
			}
			return b
		}(),
	} {
		tensor := Tensor{Name: "y", Datatype: datatype, Shape: []int{4}, Data: data}
		got, err := AppendResponse(nil, &InferResponse{ModelName: "m", Outputs: []Tensor{tensor}, NotFinite: true},
			NeverBinary)
		if want := `{"model_name":"m","outputs":[{"name":"y","datatype":"` + datatype +
			`","shape":[4],"data":[NaN,Infinity,-Infinity,1.5]}]}`; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		for _, text := range []string{
			`{"inputs":[{"name":"y","datatype":"` + datatype +
				`","shape":[2,2],"data":[[NaN, Infinity],[-Infinity ,1.5]]}]}`,
			`{"inputs":[{"data":[NaN,Infinity,-Infinity,1.5],"name":"y","shape":[4],"datatype":"` + datatype + `"}]}`,
		} {
			var r InferRequest
			if err := DecodeRequest(&r, []byte(text), -1, func(n int) []byte {
				return make([]byte, n)
			}, Limits{}); err != nil || string(r.Inputs[0].Data) != string(data) {
				t.Errorf("%s: %v, %v", text, r.Inputs, err)
			}
		}
	}
	for _, text := range []string{"NaNs", "Infinit", "-NaN", "- Infinity", "+Infinity", "NaN NaN"} {
		var r InferRequest
		body := `{"inputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[` + text + `]}]}`
		if err := DecodeRequest(&r, []byte(body), -1, func(n int) []byte {
			return make([]byte, n)
		}, Limits{}); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}
