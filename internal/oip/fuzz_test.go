package oip

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"millrace/stream/coded"
)

// seeds are messages of both directions, right and wrong; split is the length of
// the JSON, or -1.
func seeds(f *testing.F, key string) {
	add := func(members, raw string) {
		body := `{"id":"a","` + key + `":[{"name":"x",` + members + `}]}`
		if raw == "" {
			f.Add([]byte(body), -1)
		}
		f.Add([]byte(body+raw), len(body))
	}
	add(`"datatype":"FP32","shape":[2,2],"data":[[1,2.5],[-3e-2,4]]`, "")
	add(`"data":[1,255, 3],"datatype":"UINT8","shape":[3]`, "")
	add(`"data":["a","\u00e9\ud83d\ude00"],"datatype":"BYTES","shape":[2]`, "")
	add(`"datatype":"BOOL","shape":[],"data":[true]`, "")
	add(`"datatype":"INT64","shape":[1],"data":[-9223372036854775808],"parameters":{"k":1.5}`, "")
	add(`"datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}`, "abcd")
	add(`"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":10}`, "\x01\x00\x00\x00a\x01\x00\x00\x00b")
	image := []byte(`{"` + key + `":[{"name":"x","datatype":"UINT8","shape":[100],"data":[0`)
	for i := 1; i < 100; i++ {
		image = append(image, ",0"...)
		image[len(image)-1] += byte(i % 10)
	}
	f.Add(append(image, "]}]}"...), -1)
	f.Add([]byte(`{"outputs":[{"name":"a","parameters":{"binary_data":true}}],`+
		`"parameters":{"binary_data_output":true,"s":"x"}}`), -1)
	f.Add([]byte(`{"x":[[[[{"y":null}]]]]}`), -1)
	f.Add([]byte{}, 0)
}

// checkTensors checks the promises about an accepted message.
func checkTensors(t *testing.T, ts []Tensor) {
	for i, x := range ts {
		if x.Shared {
			if x.Data != nil {
				t.Fatalf("tensor %d is in shared memory and has data", i)
			}
			continue
		}
		n, err := Elements(x.Shape)
		if err != nil {
			t.Fatalf("tensor %d: %v", i, err)
		}
		if size := SizeOf(x.Datatype); size > 0 && len(x.Data) != n*size {
			t.Fatalf("tensor %d: %d bytes for %d elements of %s", i, len(x.Data), n, x.Datatype)
		} else if size == Variable {
			rest, ok := x.Data, true
			for range n {
				if _, rest, ok = NextBytes(rest); !ok {
					t.Fatalf("tensor %d: broken element", i)
				}
			}
			if len(rest) != 0 {
				t.Fatalf("tensor %d: %d bytes too many", i, len(rest))
			}
		} else if size == 0 {
			t.Fatalf("tensor %d has datatype %q", i, x.Datatype)
		}
		if len(x.Shape) > 64 || x.Name == "" {
			t.Fatalf("tensor %d: %+v", i, x)
		}
	}
}

// checkError checks that a refusal is an error of this package and can be sent.
func checkError(t *testing.T, err error) {
	var e *coded.Error
	if !errors.As(err, &e) || e.Msg == "" {
		t.Fatalf("foreign error: %v", err)
	}
	if !json.Valid(AppendString(nil, err.Error())) {
		t.Fatalf("cannot be sent: %v", err)
	}
}

// exact is body with no capacity beyond its end, so that reading past the end panics.
func exact(body []byte) []byte { return bytes.Clone(body)[:len(body):len(body)] }

func FuzzDecodeRequest(f *testing.F) {
	seeds(f, "inputs")
	f.Add([]byte(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],"parameters":{"shared_memory_region":"r",`+
		`"shared_memory_byte_size":12}}]}`), -1)
	f.Fuzz(func(t *testing.T, body []byte, header int) {
		var r InferRequest
		body = exact(body)
		lim := Limits{SharedMemory: true}
		if err := DecodeRequest(&r, body, header, reusingNone, lim); err != nil {
			checkError(t, err)
			return
		}
		text := body
		if header > 0 {
			text = body[:header]
		}
		if !json.Valid(text) {
			t.Fatalf("accepted what is not JSON: %q", text)
		}
		checkTensors(t, r.Inputs)
		out, err := AppendRequest(nil, &r, AlwaysBinary)
		if err != nil {
			t.Fatal(err)
		}
		whole := bytes.Join(BinaryParts([][]byte{out}, r.Inputs, AlwaysBinary), nil)
		var again InferRequest
		if err := DecodeRequest(&again, whole, len(out), reusingNone, lim); err != nil {
			t.Fatalf("%v\n%q", err, out)
		}
		second, err := AppendRequest(nil, &again, AlwaysBinary)
		if err != nil || !bytes.Equal(out, second) {
			t.Fatalf("%v\n%q\n%q", err, out, second)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	seeds(f, "outputs")
	f.Fuzz(func(t *testing.T, body []byte, header int) {
		var r InferResponse
		if err := DecodeResponse(&r, exact(body), header, reusingNone, Limits{}); err != nil {
			checkError(t, err)
			return
		}
		checkTensors(t, r.Outputs)
		out, err := AppendResponse(nil, &r, AlwaysBinary)
		if err != nil || !json.Valid(out) {
			t.Fatalf("%v %q", err, out)
		}
	})
}
