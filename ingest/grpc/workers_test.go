package grpc_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "millrace/internal/inferencepb"
	"millrace/internal/testneeds"
	"millrace/workers"
)

// Clients of AMD Inference Server load with parameters by their own calls, call workers in upper or lower case, and
// undo loads of removed endpoints.
func TestCallsOfAMD(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "echo", Kind: "identity"})
	text := func(s string) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: s}}
	}
	number := func(f float64) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: f}}
	}
	for _, c := range []struct {
		name   string
		params map[string]*pb.InferParameter
		want   string // the endpoint, or of the error
	}{
		{"identity", map[string]*pb.InferParameter{"delay": text("1ms")}, "identity"},
		{"IDENTITY", map[string]*pb.InferParameter{"delay": text("2ms"),
			"instances": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 2}}}, "identity-0"},
		{"identity", map[string]*pb.InferParameter{"delay": text("1ms")}, "identity"},
		{"identity", map[string]*pb.InferParameter{
			"stateful": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}, "identity-1"},
		{"identity", map[string]*pb.InferParameter{"delay": text("soon")}, "parameters.delay"},
		{"identity", map[string]*pb.InferParameter{"delay": {}}, "parameters.delay"},
		{"identity", map[string]*pb.InferParameter{"rate": number(math.NaN())}, "parameters.rate"},
		{"identity", map[string]*pb.InferParameter{"rate": number(0.5)}, "parameters.rate"},
		{"nothing", nil, "nothing"},
	} {
		got, err := r.WorkerLoad(r.ctx, &pb.WorkerLoadRequest{Name: c.name, Parameters: c.params})
		if got.GetEndpoint() != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("load of %s with %v: %v, %v, want %s", c.name, c.params, got, err, c.want)
		}
	}
	if list, err := r.ModelList(r.ctx, &pb.ModelListRequest{}); err != nil ||
		!slices.Equal(list.Models, []string{"echo", "identity", "identity-0", "identity-1"}) {
		t.Errorf("models: %v, %v", list, err)
	}
	if _, err := r.ModelLoad(r.ctx, &pb.ModelLoadRequest{Name: "Echo",
		Parameters: map[string]*pb.InferParameter{"delay": text("3ms")}}); err != nil {
		t.Errorf("load of Echo: %v", err)
	}
	if ready, err := r.ModelReady(r.ctx, &pb.ModelReadyRequest{Name: "echo-0"}); err != nil || !ready.Ready {
		t.Errorf("echo-0: %v, %v", ready, err)
	}
	if _, err := r.ModelLoad(r.ctx, &pb.ModelLoadRequest{Name: "echo",
		Version: "9"}); status.Code(err) != codes.NotFound {
		t.Errorf("load of version 9: %v", err)
	}
	for range 2 {
		if _, err := r.ModelUnload(r.ctx, &pb.ModelUnloadRequest{Name: "echo-0"}); err != nil {
			t.Errorf("unload of a model: %v", err)
		}
		if _, err := r.WorkerUnload(r.ctx, &pb.WorkerUnloadRequest{Name: "Identity-0"}); err != nil {
			t.Errorf("unload of a worker: %v", err)
		}
	}
	if ready, err := r.ModelReady(r.ctx, &pb.ModelReadyRequest{Name: "identity-0"}); err != nil || ready.Ready {
		t.Errorf("identity-0 after its unload: %v, %v", ready, err)
	}
	for name, found := range map[string]bool{"CPU": true, "DPU": false} {
		if got, err := r.HasHardware(r.ctx, &pb.HasHardwareRequest{Name: name, Num: 1}); err != nil ||
			got.Found != found {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Parameters that match no setting of a Python class reach the setup function of the class, with their types, in each
// call that loads a model.
func TestParametersOfAMDReachSetup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.py")
	if err := os.WriteFile(path, []byte(`class Service:
    def setup(self, parameters):
        self.got = dict(sorted(parameters.items()))
    def infer(self, x: str) -> str:
        return repr(self.got)
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serve(t, nil, workers.Config{Name: "svc", Source: path, Kind: "python",
		Params: map[string]any{"python": testneeds.Python(t), "parameters": `["size=1", "kept=x"]`}})
	params := func(name string) map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{
			"size":   {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 3}},
			"on":     {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}},
			"ratio":  {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}},
			"called": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: name}},
		}
	}
	worker, err := r.WorkerLoad(r.ctx, &pb.WorkerLoadRequest{Name: "svc", Parameters: params("worker")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ModelLoad(r.ctx, &pb.ModelLoadRequest{Name: "svc", Parameters: params("model")}); err != nil {
		t.Fatal(err)
	}
	list, err := r.ModelList(r.ctx, &pb.ModelListRequest{})
	if err != nil || len(list.Models) != 3 {
		t.Fatal(list, err)
	}
	for _, name := range list.Models {
		want := "{'kept': 'x', 'size': 1}"
		switch {
		case name == worker.Endpoint:
			want = "{'called': 'worker', 'kept': 'x', 'on': True, 'ratio': 0.5, 'size': 3}"
		case name != "svc":
			want = "{'called': 'model', 'kept': 'x', 'on': True, 'ratio': 0.5, 'size': 3}"
		}
		got, err := r.ModelInfer(r.ctx, &pb.ModelInferRequest{ModelName: name,
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "BYTES", Shape: []int64{1},
				Contents: &pb.InferTensorContents{BytesContents: [][]byte{[]byte("a")}}}}})
		if err != nil || len(got.RawOutputContents) != 1 || string(got.RawOutputContents[0][4:]) != want {
			t.Errorf("setup of %s got %v, %v, want %s", name, got, err, want)
		}
	}
}
