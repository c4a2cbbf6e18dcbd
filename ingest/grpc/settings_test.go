package grpc_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	pb "millrace/internal/inferencepb"
)

// An unknown value is refused by its name. TestConformance of package server covers the rest.
func TestSettings(t *testing.T) {
	r := serve(t, nil, identity)
	_, err := r.LogSettings(r.ctx, &pb.LogSettingsRequest{Settings: map[string]*pb.LogSettingsRequest_SettingValue{
		"log_info": {}}})
	isStatus(t, err, codes.InvalidArgument, "settings.log_info")
}

// Statistics of one model, of one version and of all models count rows and runs.
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
		r.until(func() bool { // a run is counted after sending its results
			out, err := r.ModelStatistics(r.ctx, in)
			if err != nil || len(out.ModelStats) != 1 {
				t.Fatal(out, err)
			}
			st = out.ModelStats[0]
			return st.ExecutionCount == 3
		})
		x := st.InferenceStats
		if st.Name != "identity" || st.Version != "1" || st.InferenceCount != 3 || x.Success.Count != 3 ||
			x.Success.Ns == 0 || x.Fail.Count != 1 || x.Queue.Count != 3 || x.ComputeInfer.Count != 3 ||
			x.Success.Ns < x.Queue.Ns || len(st.BatchStats) != 1 || st.BatchStats[0].BatchSize != 1 ||
			st.BatchStats[0].ComputeInfer.Count != 3 || st.LastInference == 0 {
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
