package client

import (
	"testing"

	"millrace/internal/wire"
)

func FuzzParseText(f *testing.F) {
	for _, s := range []string{
		`{"seq":7,"model":"m","outputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2.5]}],"timing":{"received_us":1,"run_us":3},"width":3,"height":4,"batch":2}`,
		`{"seq":7,"dropped":"stale"}`, `{"seq":7,"error":{"code":"timeout","message":"late","retryable":true}}`,
		`{"error":{"code":"draining","message":"bye"}}`, `{}`, ``, `{"seq":-1}`, `{"seq":1,"outputs":{}}`, `{"seq":1,"outputs":[{"name":"x","datatype":"FP32","shape":[99999999999],"data":[]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, ofFrame, err := parseText(text)
		if err == nil && !ofFrame && r.Err == nil {
			t.Errorf("%q is neither a reply nor an error", text)
		}
		for i := range r.Outputs {
			if err := r.Outputs[i].CheckSize(""); err == nil {
				continue
			} else {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func FuzzParseBinary(f *testing.F) {
	head := make([]byte, wire.HeaderLen)
	head[0], head[1], head[2] = wire.Version, byte(wire.KindResult), byte(wire.Tensors)
	text := `{"model_name":"m","parameters":{"batch":2,"run_us":5},"outputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}`
	whole := append(append(append(head, byte(len(text)), 0, 0, 0), text...), 1, 2, 3)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(whole[:wire.HeaderLen])
	f.Add([]byte{})
	if r, _, err := parseBinary(whole); err != nil || r.Batch != 2 || len(r.Outputs) != 1 || len(r.Outputs[0].Data) != 3 || r.Params != nil {
		f.Fatalf("%+v, %v", r, err)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, _, err := parseBinary(msg)
		if err != nil {
			return
		}
		for i := range r.Outputs {
			if err := r.Outputs[i].CheckSize(""); err != nil {
				t.Error(err)
			}
		}
	})
}
