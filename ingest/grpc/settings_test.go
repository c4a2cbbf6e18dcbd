package grpc_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "millrace/internal/inferencepb"
)

// TestSettings: settings of the log and of traces are read and changed, and what cannot be
// is refused by its name.
func TestSettings(t *testing.T) {
	r := serve(t, nil, identity)
	log := func(name string, v *pb.LogSettingsRequest_SettingValue) (*pb.LogSettingsResponse, error) {
		return r.LogSettings(r.ctx, &pb.LogSettingsRequest{Settings: map[string]*pb.LogSettingsRequest_SettingValue{name: v}})
	}
	before, err := r.LogSettings(r.ctx, &pb.LogSettingsRequest{})
	if err != nil || before.Settings["log_verbose_level"].GetUint32Param() != 0 || !before.Settings["log_errors"].GetBoolParam() || before.Settings["log_format"].GetStringParam() != "default" {
		t.Errorf("%v, %v", before, err)
	}
	after, err := log("log_info", &pb.LogSettingsRequest_SettingValue{ParameterChoice: &pb.LogSettingsRequest_SettingValue_BoolParam{}})
	if err != nil || after.Settings["log_info"].GetBoolParam() {
		t.Errorf("%v, %v", after, err)
	}
	_, err = log("log_verbose_level", &pb.LogSettingsRequest_SettingValue{ParameterChoice: &pb.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: 1}})
	isStatus(t, err, codes.InvalidArgument, "log_info")
	_, err = log("log_file", &pb.LogSettingsRequest_SettingValue{ParameterChoice: &pb.LogSettingsRequest_SettingValue_StringParam{StringParam: "/x"}})
	isStatus(t, err, codes.Unimplemented, "log_file")
	_, err = log("log_info", &pb.LogSettingsRequest_SettingValue{})
	isStatus(t, err, codes.InvalidArgument, "settings.log_info")

	trace := func(model, name string, v ...string) (*pb.TraceSettingResponse, error) {
		return r.TraceSetting(r.ctx, &pb.TraceSettingRequest{ModelName: model, Settings: map[string]*pb.TraceSettingRequest_SettingValue{name: {Value: v}}})
	}
	changed, err := trace("", "trace_rate", "7")
	if err != nil || changed.Settings["trace_rate"].GetValue()[0] != "7" || changed.Settings["trace_level"].GetValue()[0] != "TIMESTAMPS" {
		t.Errorf("%v, %v", changed, err)
	}
	_, err = trace("", "trace_rate", "often")
	isStatus(t, err, codes.InvalidArgument, "trace_rate")
	_, err = trace("identity", "trace_rate", "9")
	isStatus(t, err, codes.Unimplemented, "all models")
	_, err = trace("nobody", "trace_rate", "9")
	isStatus(t, err, codes.NotFound, "nobody")
	if of, err := r.TraceSetting(r.ctx, &pb.TraceSettingRequest{ModelName: "identity"}); err != nil || of.Settings["trace_rate"].GetValue()[0] != "7" {
		t.Errorf("%v, %v", of, err)
	}
}

// TestStatistics: those of one model, of one version and of all, which count rows and runs.
func TestStatistics(t *testing.T) {
	r := serve(t, nil, identity)
	for range 3 {
		if _, err := r.ModelInfer(r.ctx, raw("identity", "", []byte{1, 2})); err != nil {
			t.Fatal(err)
		}
	}
	bad := raw("identity", "", []byte{1})
	bad.Inputs[0].Shape = []int64{-1}
	_, err := r.ModelInfer(r.ctx, bad)
	isStatus(t, err, codes.InvalidArgument, "")
	for _, in := range []*pb.ModelStatisticsRequest{{}, {Name: "identity"}, {Name: "identity", Version: "1"}} {
		var st *pb.ModelStatistics
		r.until(func() bool { // a run is counted after its results are sent
			out, err := r.ModelStatistics(r.ctx, in)
			if err != nil || len(out.ModelStats) != 1 {
				t.Fatal(out, err)
			}
			st = out.ModelStats[0]
			return st.ExecutionCount == 3
		})
		x := st.InferenceStats
		if st.Name != "identity" || st.Version != "1" || st.InferenceCount != 3 || x.Success.Count != 3 || x.Success.Ns == 0 || x.Fail.Count != 1 || x.Queue.Count != 3 || x.ComputeInfer.Count != 3 ||
			x.Success.Ns < x.Queue.Ns || len(st.BatchStats) != 1 || st.BatchStats[0].BatchSize != 1 || st.BatchStats[0].ComputeInfer.Count != 3 || st.LastInference == 0 {
			t.Errorf("%v", st)
		}
	}
	_, err = r.ModelStatistics(r.ctx, &pb.ModelStatisticsRequest{Name: "nobody"})
	isStatus(t, err, codes.NotFound, "unknown model")
	_, err = r.ModelStatistics(r.ctx, &pb.ModelStatisticsRequest{Name: "identity", Version: "7"})
	isStatus(t, err, codes.NotFound, "")
	_, err = r.ModelStatistics(r.ctx, &pb.ModelStatisticsRequest{Version: "1"})
	isStatus(t, err, codes.InvalidArgument, "version")
}
