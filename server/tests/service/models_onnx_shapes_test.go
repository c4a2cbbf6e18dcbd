package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/client"
	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/stream"
	"millrace/workers"
)

func onnxModel(t *testing.T, in, out []onnxfile.Value, constants []onnxfile.Tensor, nodes ...onnxfile.Node) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, onnxfile.Model{Inputs: in, Outputs: out, Nodes: nodes,
		Initializers: constants}.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// copies is a model that returns its input x as y.
func copies(t *testing.T, datatype int32, dims ...any) string {
	return onnxModel(t, []onnxfile.Value{{Name: "x", Type: datatype, Dims: dims}},
		[]onnxfile.Value{{Name: "y", Type: datatype, Dims: dims}}, nil,
		onnxfile.Node{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}})
}

// Metadata, requests and answers have the shapes of the file, on every protocol. Tensors without elements run like
// others.
func TestShapesOfTheFile(t *testing.T) {
	models := []struct {
		name, param string
		dims        []any
		meta        string
		ok, refused [][]int
	}{
		{"one", "", []any{1, 16}, "[1,16]", [][]int{{1, 16}}, [][]int{{2, 16}, {0, 16}}},
		{"rows", "", []any{"N", 16}, "[-1,16]", [][]int{{1, 16}, {3, 16}}, [][]int{{0, 16}, {1, 15}}},
		{"alone", ",batching.max_size=1", []any{"N", 16}, "[-1,16]", [][]int{{1, 16}}, [][]int{{2, 16}}},
		{"vector", ",batch_axis=false", []any{"L"}, "[-1]", [][]int{{3}, {1}, {0}}, [][]int{{1, 3}}},
		{"table", ",batch_axis=false", []any{"L", 4}, "[-1,4]", [][]int{{3, 4}, {0, 4}}, [][]int{{1, 3, 4}, {3, 0}}},
		{"scalar", "", nil, "[]", [][]int{{}}, [][]int{{2}, {1, 1}}},
		{"free", "", []any{"N", "L"}, "[-1,-1]", [][]int{{1, 3}, {2, 3}, {1, 0}}, [][]int{{0, 3}}},
	}
	var specs []string
	for _, m := range models {
		specs = append(specs, m.name+"="+copies(t, onnxfile.Float32, m.dims...)+m.param)
	}
	var configs []workers.Config
	for _, spec := range specs {
		m, err := config.ParseModel(spec)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, m)
	}
	s, end := servertest.Run(t, configs...)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, m := range models {
		_, meta := servertest.Get(t, s, "/v2/models/"+m.name)
		for _, want := range []string{`"platform":"onnxruntime_onnx"`,
			`"inputs":[{"name":"x","datatype":"FP32","shape":` + m.meta + `}]`,
			`"outputs":[{"name":"y","datatype":"FP32","shape":` + m.meta + `}]`} {
			if !strings.Contains(meta, want) {
				t.Errorf("%s: %s, want %s", m.name, meta, want)
			}
		}
		replies := make(chan client.Reply, 16)
		live, err := c.Stream(t.Context(), m.name, client.StreamOptions{Policy: stream.Policy{Mode: stream.Every},
			OnReply: func(r client.Reply) {
				replies <- r
			}})
		if err != nil {
			t.Fatal(err)
		}
		send := func(in stream.Tensor) error {
			_, err := live.Send(t.Context(), client.Frame{Inputs: []stream.Tensor{in}})
			return err
		}
		for i, shape := range append(append([][]int{}, m.ok...), m.refused...) {
			dims, _ := json.Marshal(shape)
			n := stream.Elements(shape)
			values := strings.Trim(strings.Repeat("1.5,", n), ",")
			tensor := `"datatype":"FP32","shape":` + string(dims) + `,"data":[` + values + `]}`
			status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+m.name+"/infer",
				`{"inputs":[{"name":"x",`+tensor+`]}`)
			fine := i < len(m.ok)
			if fine && !strings.Contains(text, `"outputs":[{"name":"y",`+tensor+`]`) || (status == 200) != fine ||
				!fine && (status != 400 || !strings.Contains(text, "inputs[0].shape") && !strings.Contains(text,
					"inputs.shape")) {
				t.Errorf("REST, %s of %v: %d %s", m.name, shape, status, text)
			}
			in := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: shape,
				Data: bytes.Repeat(stream.AppendFloat32(nil, 1.5), n)}
			r, err := s.Native().Infer(context.Background(), m.name, []stream.Tensor{in})
			if (err == nil) != fine {
				t.Errorf("native, %s of %v: %v", m.name, shape, err)
			} else if fine {
				if got := r.Outputs[0]; fmt.Sprint(got.Shape) != fmt.Sprint(shape) || len(got.Data) != 4*n {
					t.Errorf("native, %s of %v: %v", m.name, shape, got)
				}
				r.Release()
			}
			if !fine {
				continue
			}
			if err := send(in); err != nil {
				t.Fatal(err)
			}
			if got := <-replies; got.Err != nil || len(got.Outputs) != 1 ||
				fmt.Sprint(got.Outputs[0].Shape) != fmt.Sprint(shape) {
				t.Errorf("WebSocket, %s of %v: %+v", m.name, shape, got)
			}
		}
		if _, err := live.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Answers write numbers that are not finite as the words accepted by Python's json.
func TestNumbersThatAreNotFinite(t *testing.T) {
	m, err := config.ParseModel("m=" + copies(t, onnxfile.Float32, "N", 4))
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, m)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	tensor := `"datatype":"FP32","shape":[1,4],"data":[NaN,Infinity,-Infinity,1.5]}`
	if status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/m/infer",
		`{"inputs":[{"name":"x",`+tensor+
			`]}`); status != 200 || !strings.Contains(text, `{"name":"y",`+tensor) {
		t.Errorf("%d %s", status, text)
	}
}

// A model returns half floats in tensors whose size depends on the input.
func TestHalfFloatsOfFreeSize(t *testing.T) {
	m, err := config.ParseModel("half=" + copies(t, onnxfile.Float16, "N", "L"))
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, m)
	c, err := client.New(s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	live, err := c.Stream(t.Context(), "half", client.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		// ones
		in := stream.Tensor{Name: "x", Datatype: stream.Float16, Shape: []int{1, n},
			Data: bytes.Repeat([]byte{0, 0x3c}, n)}
		if _, err := live.Send(t.Context(), client.Frame{Inputs: []stream.Tensor{in}}); err != nil {
			t.Fatal(err)
		}
		if r := <-live.Replies(); r.Err != nil || r.Outputs[0].Datatype != stream.Float16 ||
			!slices.Equal(r.Outputs[0].Shape, in.Shape) || !bytes.Equal(r.Outputs[0].Data, in.Data) {
			t.Errorf("%d numbers: %+v", n, r)
		}
	}
	c.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
}

// The setting state works in a file and in --model. A stream keeps state, and requests of
// REST do not.
func TestStateThroughTheServer(t *testing.T) {
	path := onnxModel(t, []onnxfile.Value{{Name: "x", Type: onnxfile.Float32, Dims: []any{"N", 1}},
		{Name: "s", Type: onnxfile.Float32, Dims: []any{"N", 1}}},
		[]onnxfile.Value{{Name: "y", Type: onnxfile.Float32, Dims: []any{"N", 1}},
			{Name: "s_out", Type: onnxfile.Float32, Dims: []any{"N", 1}}}, nil,
		onnxfile.Node{Op: "Add", Inputs: []string{"x", "s"}, Outputs: []string{"s_out"}},
		onnxfile.Node{Op: "Identity", Inputs: []string{"s_out"}, Outputs: []string{"y"}})
	flag, err := config.ParseModel("flag=" + path + ",state=s=s_out:5")
	if err != nil {
		t.Fatal(err)
	}
	file, err := config.Parse([]byte("models:\n  - name: file\n    source: "+path+"\n    state: s = s_out:5\n"),
		"millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, append(file.Models, flag)...)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
		if m := s.Memory().Stats(); m.Leases != 0 {
			t.Errorf("%d leases are left", m.Leases)
		}
	}()
	c, err := client.New(s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"flag", "file"} {
		meta, err := c.Metadata(t.Context(), name, "")
		if err != nil || len(meta.Inputs) != 1 || len(meta.Outputs) != 1 {
			t.Errorf("%+v, %v", meta, err)
		}
		one := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{1, 1},
			Data: stream.AppendFloat32(nil, 1)}
		live, err := c.Stream(t.Context(), name, client.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := live.Send(t.Context(), client.Frame{Inputs: []stream.Tensor{one}}); err != nil {
				t.Fatal(err)
			}
			if r := <-live.Replies(); r.Err != nil || r.Outputs[0].Float32s()[0] != float32(6+i) {
				t.Errorf("frame %d: %+v", i, r)
			}
			if _, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+name+"/infer",
				`{"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"data":[1,2]}]}`); !strings.Contains(text,
				`"data":[6,7]`) {
				t.Error(text)
			}
		}
		if _, err := live.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
